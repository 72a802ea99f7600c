//! `hmz controller --sync`: a set is in step with a repository or a directory, whatever happens to either, to the daemon or
//! to the members.

use crate::Place;
use crate::support::LIMIT;
use crate::support::command::Running;
use crate::support::eventually;
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;

/// A repository that others push to, and a machine that follows it.
struct Follower {
    place: Place,
    origin: PathBuf,
    /// A git that counts how often something is fetched.
    git: PathBuf,
}

impl Follower {
    fn new() -> Self {
        let place = Place::make();
        let origin = place.home.root().join("fleet.git");
        let git = place.home.root().join("git-bin");
        std::fs::create_dir(&git).unwrap();
        let counted = format!(
            "#!/bin/sh\ncase \"$*\" in *' fetch '*) echo >>{}/fetched;; esac\nPATH=${{PATH#*:}} exec git \"$@\"\n",
            git.display()
        );
        std::fs::write(git.join("git"), counted).unwrap();
        std::fs::set_permissions(git.join("git"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let follower = Self { place, origin, git };
        follower.git("git init -q --bare -b main ../../fleet.git && git rm -q --cached calc.py && rm calc.py");
        follower.git("git config user.email t@example.com && git config user.name t && git remote add origin ../../fleet.git");
        follower
    }

    fn git(&self, script: &str) {
        drop(self.place.home.shell(script).cwd(self.place.project.dir()).run().ok());
    }

    /// Commits what is there and pushes it; the commit.
    fn push(&self, what: &str) -> String {
        self.git(&format!("git add -A && git commit -q --allow-empty -m '{what}' && git push -q --force origin HEAD:main"));
        self.head()
    }

    fn head(&self) -> String {
        let head = self.place.home.shell("git rev-parse HEAD").cwd(self.place.project.dir()).run().ok();
        head.out().trim().to_owned()
    }

    fn environment(&self, name: &str, more: &str) {
        let workdir = self.place.home.root().join("work/w");
        std::fs::create_dir_all(&workdir).unwrap();
        self.place.project.write(
            &format!("{name}.yaml"),
            &format!(
                "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: {name}}}\nspec: {{runtime: 'docker:here', workdir: {}, \
                 image: 'busybox:latest'{more}}}\n",
                workdir.display()
            ),
        );
    }

    fn controller(&self, words: &str) -> Running {
        let path = format!("{}:{}", self.git.display(), self.place.home.variable("PATH").unwrap());
        let words = ["controller"].into_iter().chain(words.split_whitespace());
        let mut running = self.place.home.hmz(words).cwd(self.place.project.dir()).env("PATH", path).start();
        running.wait_for("listening");
        running
    }

    fn follow(&self) -> Running {
        self.controller(&format!("--sync file://{} --sync-interval 1s", self.origin.display()))
    }

    fn fetched(&self) -> usize {
        std::fs::read_to_string(self.git.join("fetched")).unwrap_or_default().lines().count()
    }

    fn set(&self, name: &str) -> Value {
        serde_json::from_str::<Value>(&self.place.hmz(&format!("get set {name} -o json")).ok().out()).unwrap()["status"].take()
    }

    /// Waits until a condition of the set has that status and reason; its message.
    fn condition(&self, set: &str, kind: &str, wanted: &str) -> String {
        eventually(&format!("{kind} {wanted}"), LIMIT, || {
            let set = self.set(set);
            let found = set["conditions"].as_array()?.iter().find(|c| c["type"] == kind)?.clone();
            let is = format!("{} {}", found["status"].as_str()?, found["reason"].as_str()?);
            (is == wanted).then(|| found["message"].as_str().unwrap_or_default().to_owned())
        })
    }

    /// Waits until a commit is what is declared.
    fn synced(&self, commit: &str) {
        eventually(&format!("the commit {commit}"), LIMIT, || {
            let set = self.set("fleet");
            let synced = set["conditions"].as_array()?.iter().any(|c| c["type"] == "Synced" && c["status"] == "True");
            (synced && set["revision"] == commit).then_some(())
        });
    }

    fn spec(&self, env: &str) -> Value {
        serde_json::from_str::<Value>(&self.place.hmz(&format!("get env {env} -o json")).ok().out()).unwrap()["spec"].take()
    }

    fn edit(&self, env: &str, program: &str) {
        drop(self.place.home.hmz(["edit", env]).env("EDITOR", program).run().ok());
    }
}

#[test]
fn a_set_follows_its_repository() {
    let follower = Follower::new();
    let place = &follower.place;
    // somebody else's, which nothing here touches
    place.environment("own.yml.txt", "own", "");
    drop(place.home.shell("hmz apply -f - --set hand < own.yml.txt").cwd(place.project.dir()).run().ok());
    follower.environment("box", ", cpus: 0.5");
    let first = follower.push("One box");
    // the daemon that the apply started makes room
    let mut controller = follower.follow();
    assert!(controller.stderr().contains("keeps the set 'fleet' in step with file://"), "{}", controller.stderr());
    follower.synced(&first);
    drop(place.hmz("wait --for=condition=Ready env/box --timeout 2m").ok());
    let listed = place.hmz("get sets").ok().out();
    assert!(listed.contains("fleet") && listed.contains(&first[..12]) && listed.contains("hand"), "{listed}");

    // a commit of which one file is broken is not applied at all
    follower.environment("box", ", cpus: 0.25");
    place.project.write("bad.yaml", "apiVersion: hmz/v1\nkind: Environmnt\n");
    let broken = follower.push("Half of it");
    let said = follower.condition("fleet", "Synced", "False Invalid");
    assert!(
        said.starts_with(&format!("commit {} (Half of it): bad.yaml:2:7: 'Environmnt' is not a kind", &broken[..12])),
        "{said}"
    );
    assert!(said.ends_with(&format!("commit {} (One box) stays declared", &first[..12])), "{said}");
    assert_eq!((follower.spec("box")["cpus"].as_f64(), follower.set("fleet")["revision"].as_str()), (Some(0.5), Some(&*first)));
    let _ = place.hmz("describe set/fleet").ok().says("bad.yaml:2:7").says("Invalid").says("One box");
    let _ = place.hmz("events --for set/fleet").ok().says("Applied").says("Invalid");

    // what is changed by hand is put back meanwhile, but for what no manifest says
    follower.edit("env/box", "sed -i -e 's/cpus: 0.5/cpus: 0.75/' -e 's/^spec:/spec:\\n  memory: 64M/'");
    eventually("the CPUs are put back", LIMIT, || (follower.spec("box")["cpus"].as_f64() == Some(0.5)).then_some(()));
    assert_eq!(follower.spec("box")["memory"], "64M");
    let _ = place.hmz("events --for set/fleet").ok().says("PutBack").says("env/box configured");
    drop(place.hmz("delete env/box").ok());
    eventually("the box is made again", LIMIT, || (place.hmz("get env/box").code() == 0).then_some(()));

    // it is mended, and a file is gone: its resource goes
    std::fs::remove_file(place.project.file("bad.yaml")).unwrap();
    std::fs::remove_file(place.project.file("box.yaml")).unwrap();
    follower.environment("other", "");
    let second = follower.push("Another one");
    follower.synced(&second);
    eventually("the box is gone", LIMIT, || (place.environments() == "env/other env/own").then_some(()));

    // nobody else may keep it, or apply to it
    let origin = format!("file://{}", follower.origin.display());
    let _ = place
        .hmz(&format!("controller --sync {origin}"))
        .expect_code(1)
        .says(&format!("keeps the set 'fleet' in step with {origin}"));
    let _ = place.hmz("apply -f . --set fleet --prune").expect_code(2).says("which would put this back");
    let _ = place.hmz("diff -f . --set fleet --prune").ok();

    // what was fetched while nothing changed has written nothing
    follower.condition("fleet", "Fetched", "True Fetched");
    drop(place.hmz("wait --for=condition=Ready env/other env/own --timeout 2m").ok());
    let written = || {
        let state = place.home.hmz_home().join("state");
        let all = ["store.db", "store.db-wal", "events.jsonl"];
        all.map(|file| std::fs::read(state.join(file)).unwrap_or_default())
    };
    // what the members came to may be written a moment later
    eventually("three fetches that write nothing", LIMIT, || {
        let (before, fetched) = (written(), follower.fetched());
        eventually("three more fetches", LIMIT, || (follower.fetched() > fetched + 3).then_some(()));
        (written() == before).then_some(())
    });

    // killed, and gone on with: the commit was taken back meanwhile
    controller.signal(Signal::KILL);
    drop(controller.wait());
    follower.git("git revert --no-edit -n HEAD && git rm -q --force bad.yaml");
    let reverted = follower.push("Revert");
    assert_eq!(
        follower.condition("fleet", "Synced", "Unknown NotRunning"),
        "no controller keeps it in step now; hmz controller --sync does"
    );
    controller = follower.follow();
    follower.synced(&reverted);
    eventually("the other one is gone", LIMIT, || (place.environments() == "env/box env/own").then_some(()));
    // and what was pushed is something else altogether
    follower.git(&format!("git reset -q --hard {first}"));
    assert_eq!(follower.push("Again, from the first"), follower.head());
    follower.synced(&follower.head());

    // a repository that is not there changes nothing, and is told in git's words
    let away = follower.origin.with_extension("away");
    std::fs::rename(&follower.origin, &away).unwrap();
    let said = follower.condition("fleet", "Fetched", "False NotFetched");
    assert!(said.contains("does not appear to be a git repository"), "{said}");
    assert_eq!(place.environments(), "env/box env/own");
    std::fs::rename(&away, &follower.origin).unwrap();
    follower.condition("fleet", "Fetched", "True Fetched");

    // an empty one is asked about
    std::fs::remove_file(place.project.file("box.yaml")).unwrap();
    let empty = follower.push("Nothing");
    let said = follower.condition("fleet", "Synced", "False Empty");
    assert!(said.contains("every member of the set 'fleet' would be deleted; if that is meant: --sync-allow-empty"), "{said}");
    controller.signal(Signal::TERM);
    drop(controller.wait().ok());
    // another source is no reason to delete what this one had
    let _ = place
        .hmz("controller --sync . --sync-set fleet")
        .expect_code(2)
        .says("was kept in step with file://")
        .says("--sync-adopt");
    let controller = follower.controller(&format!("--sync {origin} --sync-interval 1s --sync-allow-empty"));
    follower.synced(&empty);
    // as the page says it: not what was declared before, but this commit
    drop(place.home.hmz(["wait", &format!("--for=jsonpath={{.status.revision}}={empty}"), "set/fleet"]).run().ok());
    eventually("the box is gone", LIMIT, || (place.environments() == "env/own").then_some(()));
    drop(place.hmz("delete env/own").ok());
    assert_eq!(place.hmz("get sets -o name").ok().out(), "set/fleet\n");
    controller.signal(Signal::TERM);
    drop(controller.wait().ok());
    // nothing is in it, and nothing keeps it
    assert_eq!(place.hmz("get sets -o name").ok().out(), "");
}

#[test]
fn a_set_follows_a_directory_and_what_comes_with_it() {
    let follower = Follower::new();
    let place = &follower.place;
    let dir = place.home.root().join("work/manifests");
    std::fs::create_dir_all(dir.join("envs")).unwrap();
    let env = |name: &str, more: &str| {
        follower.environment(name, more);
        std::fs::rename(place.project.file(&format!("{name}.yaml")), dir.join(format!("envs/{name}.yaml"))).unwrap();
    };
    env("a", "");
    drop(place.hmz("apply -f ../manifests/envs --set manifests").ok());
    // a name that was made up takes no set over
    let sync = format!("controller --sync {}", dir.display());
    let _ = place.hmz(&format!("{sync} --sync-path envs")).expect_code(2).says("if that one is meant: --sync-set manifests");
    let _ = place.hmz(&format!("{sync} --sync-ref main")).expect_code(2).says("--sync file://");
    let _ = place.hmz(&format!("{sync} --sync-path ../envs")).expect_code(2).says("leads out of the source");
    let _ = place.hmz("controller --sync nowhere").expect_code(2).says("--sync nowhere: ");
    let controller = follower.controller(&format!("--sync {} --sync-path envs --sync-set manifests", dir.display()));
    follower.condition("manifests", "Synced", "True Applied");
    env("b", "");
    eventually("a file is a resource", LIMIT, || (place.environments() == "env/a env/b").then_some(()));
    std::fs::write(dir.join("envs/c.yaml"), "apiVersion: hmz/v1\nkind: Environment\nmetadata:\n\tname: c\n").unwrap();
    let said = follower.condition("manifests", "Synced", "False Invalid");
    assert!(said.contains("envs/c.yaml:4:") && said.contains("a tab"), "{said}");
    std::fs::rename(dir.join("envs/b.yaml"), dir.join("envs/c.yaml")).unwrap();
    std::fs::remove_file(dir.join("envs/a.yaml")).unwrap();
    eventually("a file that is gone", LIMIT, || (place.environments() == "env/b").then_some(()));
    follower.condition("manifests", "Synced", "True Applied");
    std::fs::rename(&dir, dir.with_extension("away")).unwrap();
    let said = follower.condition("manifests", "Fetched", "False NotFetched");
    assert!(said.contains("envs: No such file or directory"), "{said}");
    assert_eq!(place.environments(), "env/b");
    std::fs::rename(dir.with_extension("away"), &dir).unwrap();
    follower.condition("manifests", "Fetched", "True Fetched");
    controller.signal(Signal::TERM);
    drop(controller.wait().ok());
    // what is below is read where that is said, also what comes later
    std::fs::create_dir_all(dir.join("envs/.left")).unwrap();
    std::fs::copy(dir.join("envs/c.yaml"), dir.join("envs/.left/again.yaml")).unwrap();
    let controller = follower.controller(&format!("--sync {} --sync-recursive --sync-set manifests", dir.display()));
    follower.condition("manifests", "Synced", "True Applied");
    assert_eq!(place.environments(), "env/b");
    std::fs::create_dir_all(dir.join("envs/deep/er")).unwrap();
    env("d", "");
    std::fs::rename(dir.join("envs/d.yaml"), dir.join("envs/deep/er/d.yaml")).unwrap();
    eventually("a file below is a resource", LIMIT, || (place.environments() == "env/b env/d").then_some(()));
    let _ = place.hmz("describe set/manifests").ok().says("Recursive: true");
    controller.signal(Signal::TERM);
    drop(controller.wait().ok());
    drop(place.hmz("delete env/b env/d").ok());
}
