//! A repository whose pipeline plans, applies and prunes: at each commit the diff, the exit status and the daemon's own list are
//! what a reader of the manifests expects.

use crate::Place;
use crate::support::docker::docker;

/// The repository and what its pipeline does.
struct Repository(Place);

impl Repository {
    fn new() -> Self {
        let place = Place::make();
        // whatever others on this daemon hold meanwhile
        place.home.settings("runtimes:\n  docker:\n    here: {endpoint: local, harness: local, cpus: 1000000}\n");
        let repository = Self(place);
        repository.git("git init -q && git config user.email t@example.com && git config user.name t");
        repository
    }

    fn git(&self, script: &str) {
        drop(self.0.home.shell(script).cwd(self.0.project.dir()).run().ok());
    }

    /// What a merge request shows: for each set, the exit status and the resources that would be another.
    fn plan(&self) -> Vec<String> {
        let of = |set: &str| {
            let told = self.0.hmz(&format!("diff -f {set} --set {set} --prune"));
            let words = told.out();
            let lines: Vec<String> = words
                .lines()
                .filter(|line| !line.starts_with(' '))
                .map(|line| line.replace("env/", "").replace("would be ", ""))
                .collect();
            format!("{set} {}: {}", told.code(), lines.join(", "))
        };
        vec![of("web"), of("data")]
    }

    /// The same of one set, whole.
    fn shown(&self, set: &str) -> String {
        self.0.hmz(&format!("diff -f {set} --set {set} --prune")).expect_code(1).out()
    }

    /// The name of the container that is an environment's.
    fn container(&self, role: &str) -> String {
        let own = format!("label={}", self.0.home.label().unwrap());
        let role = format!("label=humanize.role={role}");
        docker(&["ps", "-a", "--filter", &own, "--filter", &role, "--format", "{{.Names}}"])
    }

    /// What is done on the main branch; the worst exit status.
    fn apply(&self) -> i32 {
        let of = |set: &str| self.0.hmz(&format!("apply -f {set} --set {set} --prune --wait --timeout 2m")).code();
        of("web").max(of("data"))
    }

    /// The daemon's own list: role and CPUs of each container.
    fn there(&self) -> String {
        let label = format!("label={}", self.0.home.label().unwrap());
        let format = "{{.Label \"humanize.role\"}}={{.Label \"humanize.cpus\"}}";
        let listed = docker(&["ps", "--filter", &label, "--format", format]);
        let mut listed: Vec<&str> = listed.lines().collect();
        listed.sort_unstable();
        listed.join(" ")
    }

    fn commit(&self, what: &str) {
        self.git(&format!("git add -A && git commit -qm '{what}'"));
    }
}

#[test]
fn a_repository_and_its_machine_stay_in_step() {
    let repository = Repository::new();
    let place = &repository.0;
    place.environment("web/a.yaml", "a", ", cpus: 0.1");
    place.environment("web/b.yaml", "b", ", cpus: 0.2");
    place.environment("data/c.yaml", "c", ", cpus: 0.3");
    repository.commit("two sets");
    assert_eq!(repository.plan(), ["web 1: a created, b created", "data 1: c created"]);
    assert_eq!((repository.apply(), repository.there().as_str()), (0, "a=0.1 b=0.2 c=0.3"));
    assert_eq!(repository.plan(), ["web 0: ", "data 0: "]);

    place.environment("web/a.yaml", "a", ", cpus: 0.4");
    repository.commit("a change");
    assert_eq!(repository.plan(), ["web 1: a configured", "data 0: "]);
    let said = format!(
        "env/a would be configured\n    ~ spec.cpus: 0.1 -> 0.4\n    would remove container {} from docker:here\n    would start \
         container 'a' of busybox:latest, 0.4 CPUs, on docker:here\n",
        repository.container("a")
    );
    assert_eq!(repository.shown("web"), said);
    assert_eq!((repository.apply(), repository.there().as_str()), (0, "a=0.4 b=0.2 c=0.3"));

    repository.git("git mv web/b.yaml web/d.yaml && sed -i 's/name: b/name: d/' web/d.yaml");
    repository.commit("a rename");
    assert_eq!(repository.plan(), ["web 1: d created, b deleted", "data 0: "]);
    let said = format!(
        "env/d would be created\n    + metadata.labels.\"hmz/set\": web\n    + spec.runtime: docker:here\n    + \
         spec.workdir: {}/web\n    + spec.image: busybox:latest\n    + spec.cpus: 0.2\n    would start container 'd' of \
         busybox:latest, 0.2 CPUs, on docker:here\nenv/b would be deleted\n    would remove container {} from docker:here\n",
        place.project.path(),
        repository.container("b")
    );
    assert_eq!(repository.shown("web"), said);
    assert_eq!((repository.apply(), repository.there().as_str()), (0, "a=0.4 c=0.3 d=0.2"));

    repository.git("git rm -q web/a.yaml");
    repository.commit("a removal");
    assert_eq!(repository.plan(), ["web 1: a deleted", "data 0: "]);
    assert_eq!((repository.apply(), repository.there().as_str()), (0, "c=0.3 d=0.2"));

    repository.git("sed -i 's/cpus/cpsu/' web/d.yaml && git rm -q data/c.yaml");
    repository.commit("a broken commit");
    assert_eq!(repository.plan(), ["web 2: ", "data 2: "], "one cannot be read, and one would be emptied");
    assert_eq!((repository.apply(), repository.there().as_str()), (2, "c=0.3 d=0.2"));

    repository.git("git revert -n HEAD");
    repository.commit("a rollback");
    assert_eq!(repository.plan(), ["web 0: ", "data 0: "]);
    assert_eq!((repository.apply(), repository.there().as_str()), (0, "c=0.3 d=0.2"));

    // drift by hand: of what is declared, and of what is not
    let editor = "sed -i -e 's/cpus: 0.2/cpus: 0.1/'";
    drop(place.home.hmz(["edit", "env/d"]).env("EDITOR", editor).run().ok());
    drop(place.hmz("label env/c note=mine").ok());
    drop(place.hmz("wait --for=jsonpath={.status.share.cpus}=0.1 env/d --timeout 2m").ok());
    assert_eq!(repository.plan(), ["web 1: d configured", "data 0: "]);
    let said = format!(
        "env/d would be configured\n    ~ spec.cpus: 0.1 -> 0.2\n    would remove container {} from docker:here\n    would start \
         container 'd' of busybox:latest, 0.2 CPUs, on docker:here\n",
        repository.container("d")
    );
    assert_eq!(repository.shown("web"), said);
    assert_eq!((repository.apply(), repository.there().as_str()), (0, "c=0.3 d=0.2"));
    assert_eq!(place.hmz("get env/c -o jsonpath={.metadata.labels.note}").ok().out(), "mine");

    repository.git("git checkout -q HEAD~4 -- web && git rm -q --cached web/d.yaml && rm web/d.yaml");
    repository.commit("back to before the rename");
    assert_eq!(repository.plan(), ["web 1: a created, b created, d deleted", "data 0: "]);
    assert_eq!((repository.apply(), repository.there().as_str()), (0, "a=0.4 b=0.2 c=0.3"));
    assert_eq!(repository.plan(), ["web 0: ", "data 0: "]);
    drop(place.hmz("delete -f web -f data").ok());
    assert_eq!(place.home.containers(), Vec::<String>::new());
}
