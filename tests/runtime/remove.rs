//! A runtime is taken out of settings.yaml and nothing else is.

use super::{file, text};
use crate::support::home::{SETTINGS, TestHome};

#[test]
fn its_entry_goes_and_who_named_it_is_told() {
    let home = TestHome::new();
    let entries = "    a.b: {cpus: 4}   # with a dot\n    typo: {cpsu: 4}\n    through: {endpoint: 'ssh:far'}   # stays\n    next: \
                   {fallback: ['docker:a.b']}\n";
    let hosts = "  ssh:\n    far: {host: far.example}\n    here: {host: here.example}\n";
    home.settings(&format!("{SETTINGS}{entries}{hosts}"));
    let file = file(&home);
    let remove = |name: &str| home.hmz(["runtime", "remove", name]).run();
    let both = remove("here").expect_code(2);
    assert_eq!(both.err(), "hmz runtime remove: error: 'here' is saved as docker/here and ssh/here: say which\n");
    let dotted = remove("a.b").ok();
    assert_eq!(dotted.out(), format!("docker/a.b removed from {file}\n"));
    assert_eq!(dotted.err(), "hmz runtime remove: docker/next had docker/a.b to fall back to; edit it\n");
    // one that cannot be read is removed by its name as well
    assert_eq!(remove("typo").ok().out(), format!("docker/typo removed from {file}\n"));
    let far = remove("ssh/far").ok();
    assert_eq!(far.err(), "hmz runtime remove: docker/through reached docker through this host; edit it\n");
    let left = "    through: {endpoint: 'ssh:far'}   # stays\n    next: {fallback: ['docker:a.b']}\n";
    assert_eq!(text(&home), format!("{SETTINGS}{left}  ssh:\n    here: {{host: here.example}}\n"));
    for (name, said) in [("docker/gone", "no docker runtime is saved as 'gone'"), ("gone", "no runtime is saved as 'gone'")] {
        let gone = remove(name).expect_code(1);
        assert!(gone.err().starts_with(&format!("hmz runtime remove: error: {said}\n")), "{gone}");
    }
    let _ = remove("docker").expect_code(2);
}

#[test]
fn what_is_on_it_is_told_and_stays() {
    let home = TestHome::new();
    let project = home.project("p");
    let manifest = format!(
        "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: mine}}\nspec: {{runtime: 'docker:here', workdir: '{}', image: \
         'busybox:latest'}}\n",
        project.path()
    );
    let _ = home.hmz(["apply", "-f", "-"]).stdin(manifest).run().ok();
    let _ = home.hmz(["wait", "--for=condition=Ready", "env/mine", "--timeout", "100s"]).run().ok();
    let done = home.hmz(["runtime", "remove", "here"]).run().ok();
    assert_eq!(done.err(), "hmz runtime remove: docker/here takes nothing new and goes with what is on it: env/mine\n");
    assert_eq!(home.containers().len(), 1);
    let _ = home.hmz(["delete", "env/mine"]).run().ok();
    assert_eq!(home.containers(), Vec::<String>::new());
}
