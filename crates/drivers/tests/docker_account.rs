//! Who a box's user is to the programs in it, on a real daemon.

#![allow(clippy::unwrap_used)] // of tests only, which clippy does not see in functions beside them

mod common;

use common::{Corner, Image, between, docker, exec, inspect, up};
use hmz_drivers::docker::{DockerDriver, DockerIdentity};
use hmz_drivers::{BoxSpec, Driver as _, Started};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

const PYTHON: &str = "python:3.12-slim";
/// A uid and a gid that no image here knows.
const UID: u32 = 54321;
const GID: u32 = 54322;

fn corner() -> Corner {
    let c = Corner::new(Default::default());
    std::fs::set_permissions(c.work(), std::fs::Permissions::from_mode(0o777)).unwrap();
    c
}

/// A box of that image, of an ordinary user of that name.
async fn of(c: &Corner, image: &str, name: &str, uid: u32) -> Started {
    let driver = DockerDriver::new(DockerIdentity { uid, gid: GID, user_name: name.into(), ..c.identity() });
    up(&driver, &c.target, &BoxSpec { image: image.into(), ..c.spec(&c.key("box")) }).await
}

#[tokio::test]
async fn an_ordinary_user_has_a_name() {
    let c = corner();
    let started = of(&c, PYTHON, "tester", UID).await;
    assert_eq!(exec(&started.id, "whoami; id -un; id -gn"), Ok("tester\ntester\ntester".into()));
    let python = "python3 -c 'import os, pwd, grp; print(pwd.getpwuid(os.getuid())); print(grp.getgrgid(os.getgid()).gr_name)'";
    let told = exec(&started.id, python).unwrap();
    let expected = format!(
        "pwd.struct_passwd(pw_name='tester', pw_passwd='x', pw_uid={UID}, pw_gid={GID}, pw_gecos='', pw_dir='/tmp', pw_shell='/bin/sh')\ntester"
    );
    assert_eq!(told, expected);
    // the rest of the file, its mode and its owner are the image's
    let image = |command: &str| docker(&["run", "--rm", PYTHON, "sh", "-c", command]);
    for file in ["/etc/passwd", "/etc/group"] {
        assert_eq!(exec(&started.id, &format!("head -n -1 {file}")).unwrap(), image(&format!("cat {file}")), "{file}");
        let stat = format!("stat -c '%a %u %g' {file}");
        assert_eq!(exec(&started.id, &stat).unwrap(), image(&stat));
    }
    // they are the container's own: the image is as it was
    assert_eq!(image("grep -c tester /etc/passwd || true"), "0");
}

#[tokio::test]
async fn one_of_busybox_has_a_name_too() {
    let c = corner();
    let started = of(&c, common::IMAGE, "tester", UID).await;
    assert_eq!(exec(&started.id, "whoami; id -un; id -gn"), Ok("tester\ntester\ntester".into()));
}

#[tokio::test]
async fn an_image_without_the_files_gets_them() {
    let image = Image::new("FROM busybox:latest\nRUN rm /etc/passwd /etc/group\n");
    let c = corner();
    let started = of(&c, &image.0, "tester", UID).await;
    assert_eq!(exec(&started.id, "whoami; id -gn"), Ok("tester\ntester".into()));
    let stat = exec(&started.id, "stat -c '%a %u %g' /etc/passwd /etc/group");
    assert_eq!(stat, Ok("644 0 0\n644 0 0".into()));
}

#[tokio::test]
async fn a_name_the_image_uses_for_another_is_not_taken() {
    let c = corner();
    let started = of(&c, PYTHON, "daemon", UID).await;
    assert_eq!(exec(&started.id, "whoami; id -u daemon; id -gn"), Ok("hmz\n1\nhmz".into()));
}

#[tokio::test]
async fn a_user_the_image_knows_keeps_that_name() {
    let image = Image::new(&format!(
        "FROM busybox:latest\nRUN echo 'node:x:{UID}:{GID}::/home/node:/bin/sh' >> /etc/passwd && echo 'node:x:{GID}:' >> /etc/group\n"
    ));
    let c = corner();
    let started = of(&c, &image.0, "tester", UID).await;
    assert_eq!(exec(&started.id, "whoami; id -gn; grep -c tester /etc/passwd || true"), Ok("node\nnode\n0".into()));
}

#[tokio::test]
async fn links_of_an_image_are_left_as_they_are() {
    let c = corner();
    // what is there under the link's name on this machine, and in the container
    let outside = c.dir.path().join("passwd");
    std::fs::write(&outside, "precious\n").unwrap();
    let at = outside.display();
    let image = Image::new(&format!(
        "FROM busybox:latest\nRUN mkdir -p {} && echo inside > {at} && ln -sf {at} /etc/passwd && ln -sf ../../../../../..{at} /etc/group\n",
        c.dir.path().display()
    ));
    let started = of(&c, &image.0, "tester", UID).await;
    assert_eq!(exec(&started.id, &format!("readlink /etc/passwd; cat {at}")), Ok(format!("{at}\ninside")));
    assert!(exec(&started.id, "whoami").is_err(), "there is no file to put a name into");
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "precious\n");
}

/// The requests that went by on the way to a daemon, but for those of admission.
async fn asked(uid: u32, image: &str) -> Vec<String> {
    let mut c = corner();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let lines = Arc::clone(&seen);
    let socket = between(&c, move |line| lines.lock().unwrap().push(line.to_owned()));
    c.target.local_endpoint = Some(format!("unix://{socket}"));
    let started = of(&c, image, "tester", uid).await;
    assert_eq!(inspect(&started.id, "{{.State.Running}}"), "true");
    let seen = seen.lock().unwrap();
    seen.iter().filter(|line| line.contains("/archive")).map(|l| l.split(' ').next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn it_costs_one_read_and_one_write_and_nothing_for_root() {
    assert_eq!(asked(0, common::IMAGE).await, Vec::<String>::new());
    assert_eq!(asked(UID, common::IMAGE).await, ["GET", "PUT"]);
}

#[tokio::test]
async fn a_box_that_was_only_created_gets_the_lines_before_it_is_started() {
    let c = corner();
    let driver = DockerDriver::new(DockerIdentity { uid: UID, gid: GID, ..c.identity() });
    let spec = c.spec(&c.key("box"));
    let first = up(&driver, &c.target, &spec).await;
    // as a daemon leaves it that dies between create and start
    let name = first.name.clone();
    let labels = docker(&["inspect", "--format", "{{range $k, $v := .Config.Labels}}{{$k}}={{$v}}\n{{end}}", &first.id]);
    docker(&["rm", "-f", &first.id]);
    let program = format!("{}:/.hmz/hmz:ro", spec.guest.program.display());
    let mut args = vec!["create", "--name", &name, "--user", "54321:54322", "-v", &program, "--entrypoint", "/.hmz/hmz"];
    for label in labels.lines().filter(|l| !l.is_empty()) {
        args.extend(["--label", label]);
    }
    args.push(common::IMAGE);
    let made = docker(&args);
    driver.admit(&c.target, &[common::want(&spec.key)]).await.unwrap();
    let again = driver.start(&c.target, &spec).await.unwrap();
    assert_eq!((again.id.as_str(), exec(&again.id, "whoami")), (made.as_str(), Ok("tester".into())));
}
