//! Daemons of other machines, or as good as: reached over TLS, over ssh and by a context; and one that remaps users.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // of tests only, which clippy does not see here

mod common;

use common::{Corner, Hosts, until, want};
use hmz_api::way::Way;
use hmz_drivers::docker::{DockerDriver, DockerIdentity, Limits};
use hmz_drivers::{Admitted, BoxSpec, BoxState, Driver, DriverError, RemoveOutcome};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The daemons of the testbed, and a corner of this test's own there.
struct Far {
    corner: Corner,
    place: BTreeMap<String, String>,
    /// A directory that only the daemon's machine has, and the same one here.
    work: (PathBuf, PathBuf),
}

impl Far {
    fn new() -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/testbed/far");
        let out = Command::new(script).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let text = String::from_utf8(out.stdout).unwrap();
        let place: BTreeMap<_, _> =
            text.lines().filter_map(|l| l.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let corner = Corner::new(Default::default());
        let name = corner.instance.clone();
        let work = (Path::new("/srv").join(&name), Path::new(&place["files"]).join(&name));
        std::fs::create_dir(&work.1).unwrap();
        std::os::unix::fs::chown(&work.1, Some(1234), Some(2345)).unwrap();
        let mut far = Self { corner, place, work };
        far.at(&format!("tcp://{}", far.place["tcp"]));
        far.corner.target.spec.tls_dir = Some(far.place["tls"].clone());
        far
    }

    fn at(&mut self, endpoint: &str) {
        self.corner.target.spec.endpoint = endpoint.parse().unwrap();
        self.corner.target.spec.tls_dir = None;
        self.corner.target.local_endpoint = None;
    }

    /// A driver that knows the host by everything that can be saved of one.
    fn driver(&self) -> DockerDriver {
        let hosts = Hosts::of("far", |spec| {
            spec.host = Some("127.0.0.1".into());
            spec.user = Some("root".into());
            spec.port = self.place["ssh_port"].parse().ok();
            spec.identity_file = Some(self.place["ssh_key"].clone());
            spec.config = Some("/dev/null".into());
            spec.options = [
                ("UserKnownHostsFile".to_owned(), self.place["ssh_known_hosts"].clone()),
                ("IdentitiesOnly".to_owned(), "yes".to_owned()),
            ]
            .into();
        });
        DockerDriver::new(DockerIdentity { hosts, ..self.corner.identity() })
    }

    fn spec(&self, key: &hmz_drivers::BoxKey) -> BoxSpec {
        BoxSpec { workdir: self.work.0.clone(), ..self.corner.spec(key) }
    }

    fn docker(&self, args: &[&str]) -> String {
        let host = format!("unix://{}", self.place["socket"]);
        let out = Command::new("docker").args(["-H", &host]).args(args).output().unwrap();
        assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim_end().to_owned()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        for host in [&self.place["socket"], &self.place["remap"]] {
            let host = format!("unix://{host}");
            let label = format!("label=hmz.instance={}", self.corner.instance);
            let out = Command::new("docker").args(["-H", &host, "ps", "-aq", "--filter", &label]).output();
            for id in out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default().lines() {
                let _ = Command::new("docker").args(["-H", &host, "rm", "-fv", id]).output();
            }
        }
        let _ = std::fs::remove_dir_all(&self.work.1);
    }
}

/// From admission to removal, through one way.
async fn a_life(far: &Far) {
    let driver = far.driver();
    let target = &far.corner.target;
    let facts = driver.probe(target).await.unwrap();
    assert_eq!(facts.endpoint, target.spec.endpoint.to_string());
    std::fs::write(far.work.1.join("tell"), "").unwrap();
    let key = far.corner.key("box");
    let spec = BoxSpec { lease: Some(Duration::from_secs(77)), ..far.spec(&key) };
    let admitted = driver.admit(target, &[want(&key)]).await.unwrap();
    assert!(matches!(admitted, Admitted::Held(_)), "{admitted:?}");
    let started = driver.start(target, &spec).await.unwrap();
    // the socket it is reached at leads to its daemon, for whoever speaks to it
    let reach = started.reach.clone().expect("a daemon elsewhere");
    let near = match (&reach.near, &reach.way) {
        (Some(near), _) | (None, Way::Unix(near)) => near,
        other => panic!("{other:?}"),
    };
    let daemon = format!("unix://{}", near.display());
    let id = started.id.clone();
    let ask = move || Command::new("docker").args(["-H", &daemon, "inspect", "--format", "{{.Name}}", &id]).output();
    let out = tokio::task::spawn_blocking(ask).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), format!("/{}", started.name), "{out:?}");
    let told = far.work.1.join("told");
    until("the first process has told", async || told.exists()).await;
    let owner = std::fs::metadata(&told).unwrap();
    assert_eq!((owner.uid(), owner.gid()), (1234, 2345), "it is its directory's owner");
    let told = std::fs::read_to_string(told).unwrap();
    for line in ["arg /.hmz/hmz", "arg guest", "arg --channel", "arg 77", "pid 1", "env USER=hmz", "CapEff: 0000000000000000"] {
        assert!(told.lines().any(|l| l == line), "{line} in {told}");
    }
    let listed = driver.list(target).await.unwrap();
    let mine: Vec<_> = listed.iter().filter(|b| b.key.as_ref() == Some(&key)).collect();
    assert!(matches!(mine.as_slice(), [one] if matches!(one.state, BoxState::Running(_))), "{mine:?}");
    assert_eq!(driver.start(target, &spec).await.unwrap(), started, "started again, it is adopted");
    assert_eq!(driver.remove(target, &key).await.unwrap(), RemoveOutcome::Removed);
    let label = format!("label=hmz.instance={}", far.corner.instance);
    assert_eq!(far.docker(&["ps", "-aq", "--filter", &label]), "");
}

#[tokio::test]
async fn a_life_over_tls() {
    a_life(&Far::new()).await;
}

#[tokio::test]
async fn a_life_over_ssh_to_a_saved_host() {
    let mut far = Far::new();
    far.at("ssh:far");
    a_life(&far).await;
}

#[tokio::test]
async fn a_life_by_a_context_with_its_certificates() {
    use sha2::{Digest as _, Sha256};
    let mut far = Far::new();
    let folder: String = Sha256::digest("far").iter().map(|b| format!("{b:02x}")).collect();
    let config = far.corner.identity().docker_config_dir;
    let (meta, tls) = (config.join("contexts/meta").join(&folder), config.join("contexts/tls").join(&folder).join("docker"));
    std::fs::create_dir_all(&meta).unwrap();
    std::fs::create_dir_all(&tls).unwrap();
    let host = format!("tcp://{}", far.place["tcp"]);
    let text = serde_json::json!({"Name": "far", "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": false}}});
    std::fs::write(meta.join("meta.json"), text.to_string()).unwrap();
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        std::fs::copy(Path::new(&far.place["tls"]).join(file), tls.join(file)).unwrap();
    }
    far.at("context:far");
    a_life(&far).await;
}

#[tokio::test]
async fn certificates_of_another_authority_are_refused_in_words() {
    let mut far = Far::new();
    far.corner.target.spec.tls_dir = Some(far.place["tls_other"].clone());
    let said = far.driver().probe(&far.corner.target).await.unwrap_err().to_string();
    let at = format!(
        "could not connect to {}: could not ask tcp://{} what it has: ",
        far.corner.target.runtime.at(),
        far.place["tcp"]
    );
    assert!(said.starts_with(&at) && said.contains("invalid peer certificate"), "{said}");

    // the daemon's authority with somebody else's certificate: the daemon says no
    let dir = far.corner.dir.path().join("mixed");
    std::fs::create_dir(&dir).unwrap();
    for (from, file) in [("tls", "ca.pem"), ("tls_other", "cert.pem"), ("tls_other", "key.pem")] {
        std::fs::copy(Path::new(&far.place[from]).join(file), dir.join(file)).unwrap();
    }
    far.corner.target.spec.tls_dir = Some(dir.display().to_string());
    let said = far.driver().probe(&far.corner.target).await.unwrap_err().to_string();
    assert!(said.starts_with(&at) && said.contains("alert"), "{said}");

    // a key that is not the certificate's
    std::fs::copy(Path::new(&far.place["tls"]).join("key.pem"), dir.join("key.pem")).unwrap();
    let error = far.driver().probe(&far.corner.target).await.unwrap_err();
    assert!(matches!(&error, DriverError::Refused(text) if text.contains("key.pem")), "{error}");
}

#[tokio::test]
async fn a_key_the_host_does_not_take_is_said_by_ssh_itself() {
    let mut far = Far::new();
    far.at("ssh:far");
    let hosts = Hosts::of("far", |spec| {
        spec.host = Some("127.0.0.1".into());
        spec.port = far.place["ssh_port"].parse().ok();
        spec.identity_file = Some("/no/such/key".into());
        spec.config = Some("/dev/null".into());
        spec.options = [
            ("UserKnownHostsFile".to_owned(), far.place["ssh_known_hosts"].clone()),
            ("IdentitiesOnly".to_owned(), "yes".to_owned()),
            ("IdentityAgent".to_owned(), "none".to_owned()),
        ]
        .into();
    });
    let driver = DockerDriver::new(DockerIdentity { hosts, ..far.corner.identity() });
    let said = driver.probe(&far.corner.target).await.unwrap_err().to_string();
    assert!(
        said.contains("could not ask ssh:far what it has: ssh to 127.0.0.1 ended") && said.contains("Permission denied"),
        "{said}"
    );
}

#[tokio::test]
async fn one_ssh_serves_all_and_is_had_again_when_it_ended() {
    let mut far = Far::new();
    far.at("ssh:far");
    let driver = far.driver();
    driver.probe(&far.corner.target).await.unwrap();
    let sockets = far.corner.identity().sockets.display().to_string();
    let ours = || {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.starts_with("ssh ") && line.contains(&sockets) {
                found.push(entry.file_name().into_string().unwrap().parse::<i32>().unwrap());
            }
        }
        found
    };
    let first = ours();
    assert_eq!(first.len(), 1, "{first:?}");
    let (target, driver) = (&far.corner.target, &driver);
    let all = (0..20).map(|_| async move { driver.list(target).await.map(drop) });
    futures::future::try_join_all(all).await.unwrap();
    driver.probe(target).await.unwrap();
    assert_eq!(ours(), first);
    rustix::process::kill_process(rustix::process::Pid::from_raw(first[0]).unwrap(), rustix::process::Signal::KILL).unwrap();
    until("the daemon answers again", async || driver.list(target).await.is_ok()).await;
    assert!(ours().len() == 1 && ours() != first);
}

#[tokio::test]
async fn a_directory_the_daemons_machine_lacks_is_refused_and_not_made() {
    let far = Far::new();
    let key = far.corner.key("box");
    let missing = far.work.0.join("missing");
    let target = &far.corner.target;
    let driver = far.driver();
    assert!(matches!(driver.admit(target, &[want(&key)]).await.unwrap(), Admitted::Held(_)));
    let spec = BoxSpec { workdir: missing.clone(), ..far.spec(&key) };
    let words = format!(
        "{} has no {} to run a container: no directory to give the container on tcp://{}",
        target.runtime.at(),
        missing.display(),
        far.place["tcp"]
    );
    assert_eq!(driver.start(target, &spec).await.unwrap_err(), DriverError::Refused(words));
    assert!(!far.work.1.join("missing").exists());
    let label = format!("label=hmz.instance={}", far.corner.instance);
    assert_eq!(far.docker(&["ps", "-aq", "--filter", &label]), "", "nothing is left");
}

#[tokio::test]
async fn a_guest_is_brought_once_however_many_boxes_start() {
    let far = Far::new();
    // a guest nobody has brought there yet
    let program = far.corner.dir.path().join("guest");
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_hmz-test-pid1")).unwrap();
    bytes.extend_from_slice(far.corner.instance.as_bytes());
    std::fs::write(&program, bytes).unwrap();
    let keys: Vec<_> = (0..4).map(|n| far.corner.key(&format!("r{n}"))).collect();
    let (target, driver) = (&far.corner.target, &far.driver());
    let wants: Vec<_> = keys.iter().map(want).collect();
    assert!(matches!(driver.admit(target, &wants).await.unwrap(), Admitted::Held(_)));
    let before: Vec<String> =
        far.docker(&["volume", "ls", "-q", "--filter", "label=hmz.guest"]).lines().map(str::to_owned).collect();
    let all = keys.iter().map(|key| {
        let mut spec = far.spec(key);
        spec.guest.program.clone_from(&program);
        async move { driver.start(target, &spec).await }
    });
    let started = futures::future::try_join_all(all).await.unwrap();
    let mut volumes: Vec<String> = started
        .iter()
        .map(|s| {
            far.docker(&[
                "inspect",
                "--format",
                "{{range .Mounts}}{{if eq .Destination \"/.hmz\"}}{{.Name}}{{end}}{{end}}",
                &s.id,
            ])
        })
        .collect();
    volumes.sort();
    volumes.dedup();
    assert!(volumes.len() == 1 && !before.contains(&volumes[0]), "{volumes:?} {before:?}");
    for key in &keys {
        driver.remove(target, key).await.unwrap();
    }
    far.docker(&["volume", "rm", &volumes[0]]);
}

#[tokio::test]
async fn a_volume_that_is_not_whole_is_never_used() {
    use sha2::{Digest as _, Sha256};
    let far = Far::new();
    let program = far.corner.dir.path().join("guest");
    let mut bytes = std::fs::read(env!("CARGO_BIN_EXE_hmz-test-pid1")).unwrap();
    bytes.extend_from_slice(far.corner.instance.as_bytes());
    std::fs::write(&program, &bytes).unwrap();
    let digest: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    let half = format!("hmz-guest-0-half-{}", far.corner.instance);
    far.docker(&["volume", "create", "--label", &format!("hmz.guest={digest}"), &half]);
    let key = far.corner.key("box");
    let (target, driver) = (&far.corner.target, &far.driver());
    assert!(matches!(driver.admit(target, &[want(&key)]).await.unwrap(), Admitted::Held(_)));
    let mut spec = far.spec(&key);
    spec.guest.program = program;
    let started = driver.start(target, &spec).await.unwrap();
    let format = "{{range .Mounts}}{{if eq .Destination \"/.hmz\"}}{{.Name}}{{end}}{{end}}";
    let used = far.docker(&["inspect", "--format", format, &started.id]);
    assert!(used.starts_with("hmz-guest-") && used != half, "{used}");
    driver.remove(target, &key).await.unwrap();
    for volume in [&half, &used] {
        far.docker(&["volume", "rm", volume]);
    }
}

#[tokio::test]
async fn a_socket_here_that_leads_elsewhere_is_elsewhere() {
    let mut far = Far::new();
    far.at(&format!("unix://{}", far.place["socket"]));
    a_life(&far).await;
}

#[tokio::test]
async fn the_work_on_a_daemon_that_remaps_users_is_its_owners() {
    let mut far = Far::new();
    far.at(&format!("unix://{}", far.place["remap"]));
    let c = &far.corner;
    let driver = DockerDriver::with_limits(DockerIdentity { uid: 12345, gid: 12345, ..c.identity() }, Limits::default());
    for dir in ["work", "sock", "scratch"] {
        std::os::unix::fs::chown(c.dir.path().join(dir), Some(12345), Some(12345)).unwrap();
    }
    std::fs::set_permissions(c.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(c.work().join("tell"), "").unwrap();
    let key = c.key("box");
    assert!(matches!(driver.admit(&c.target, &[want(&key)]).await.unwrap(), Admitted::Held(_)));
    driver.start(&c.target, &c.spec(&key)).await.unwrap();
    let told = c.work().join("told");
    until("the first process has told", async || told.exists()).await;
    assert_eq!(std::fs::metadata(&told).unwrap().uid(), 12345);
    driver.remove(&c.target, &key).await.unwrap();
}
