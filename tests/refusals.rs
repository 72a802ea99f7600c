//! Every refusal comes before anything starts, in these words, with exit status 2, and leaves nothing behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

#[path = "refusals/settings.rs"]
mod settings;
#[path = "refusals/swarm.rs"]
mod swarm;

use support::command::Finished;
use support::home::TestHome;
use support::project::{BUGGY, Project};
use support::{LIMIT, eventually};

const RUNTIMES: &str = "\
runtimes:
  docker:
    here: {endpoint: local, harness: local}
    gpubox: {endpoint: local, harness: local, cpus: 4, memory: 8G}
    one: {endpoint: local, harness: local, max_containers: 1}
    gone: {endpoint: 'unix:///nowhere.sock', harness: local}
    far: {endpoint: 'tcp://127.0.0.1:1', harness: local}
    inbox: {endpoint: local}
    unsaved: {endpoint: 'ssh:nohost', harness: local}
    device: {endpoint: local, harness: local, run_args: ['--device=/dev/no-such-device']}
    beside: {endpoint: local, harness: 'docker:x'}
";

struct Place {
    home: TestHome,
    project: Project,
}

impl Place {
    fn new() -> Self {
        let home = TestHome::new();
        home.settings(RUNTIMES);
        let project = home.project("p");
        project.write("steps.yaml", "- say: it ran\n");
        let asks = [
            ("boxed8", "cpus: 8"),
            ("mem16", "memory: 16G"),
            ("noimage", "image: '127.0.0.1:1/hmz-test/none:1'"),
            ("gpu", "gpus: 1"),
        ];
        for (name, ask) in asks {
            flow(&project, name, &format!("box: {{{ask}}}"));
        }
        flow(&project, "two", "box: {image: 'busybox:latest'}, other: {image: 'busybox:latest'}");
        flow(&project, "small", "box: {image: 'busybox:latest'}");
        Self { home, project }
    }

    /// `hmz exec` with the words of a shell; `$P` is the project's directory.
    fn exec(&self, words: &str) -> Finished {
        let words = words.replace("$A", "-a coder=script/./steps.yaml").replace("$P", self.project.path());
        let line = format!("hmz exec -p budget.duration=10m {words} do");
        self.home.shell(&line).cwd(self.project.dir()).run()
    }

    /// Sees that it was refused so, and that there is nothing.
    #[track_caller]
    fn refused(&self, finished: Finished, said: &str) {
        let said = said.replace("$P", self.project.path());
        let finished = finished.expect_code(2);
        assert!(finished.err().contains(&said), "it does not say\n{said}\n{finished}");
        assert_eq!(finished.out(), "", "{finished}");
        assert_eq!(self.home.containers(), Vec::<String>::new(), "{finished}");
        assert_eq!(self.home.hmz(["get", "envs"]).run().ok().out(), "", "{finished}");
        assert_eq!(self.project.read("calc.py"), BUGGY);
    }

    fn table(&self, rows: &[(&str, &str)]) {
        for (words, said) in rows {
            self.refused(self.exec(words), &format!("hmz exec: error: {said}"));
        }
    }
}

fn flow(project: &Project, name: &str, environments: &str) {
    let text = format!(
        "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: {name}}}\nspec:\n  agents: {{coder: {{}}}}\n  environments: \
         {{{environments}}}\n  steps: [{{turn: {{agent: coder, environment: box, prompt: '{{{{ task }}}}'}}}}]\n"
    );
    project.write(&format!(".hmz/flows/{name}.yaml"), &text);
}

#[test]
fn flows_and_roles() {
    Place::new().table(&[
        ("-f boxd $A -e box=docker@here$P", "there is no flow 'boxd'; did you mean 'boxed'?\n  hint: -f boxed\n"),
        ("-f zzz $A -e box=docker@here$P", "there is no flow 'zzz'\n  hint: known flows: boxed, boxed8, "),
        ("-f boxed -e box=docker@here$P", "boxed needs an agent for 'coder'; specify each with -a ROLE=CLI/MODEL:EFFORT"),
        (
            "-f boxed -a codre=script/./steps.yaml -e box=docker@here$P",
            "boxed has no agent role 'codre'; available roles are 'coder'\n  hint: -a coder=script/$P/steps.yaml\n",
        ),
        ("-f boxed $A", "boxed needs an environment for 'box'; specify each with -e ROLE=BACKEND[@PROVIDER]/WORKDIR"),
        (
            "-f boxed $A -e bax=docker@here$P",
            "boxed has no environment role 'bax'; available roles are 'box'\n  hint: -e box=docker@here$P\n",
        ),
        ("-f boxed $A -a script/./x -e box=docker@here$P", "-a 'script/./x': every agent role of boxed has an agent already"),
        ("-f boxed $A $A -e box=docker@here$P", "-a: the role 'coder' is given twice"),
        ("-f boxed $A -e box=docker@here$P -e box=docker@here$P", "-e: the role 'box' is given twice"),
    ]);
}

#[test]
fn words_that_are_wrong() {
    let agent = "expected [<role>=]<harness>[@<provider>]/<model>[:<effort>]";
    Place::new().table(&[
        ("-f boxed -a coder=claude -e box=docker@here$P", &format!("-a 'coder=claude': {agent}")),
        ("-f boxed -a coder=claude@/x:low -e box=docker@here$P", "-a 'coder=claude@/x:low': expected an account after @"),
        ("-f boxed -a 'co der=script/x' -e box=docker@here$P", "-a 'co der=script/x': the role 'co der' is not an identifier"),
        (
            "-f boxed -a coder=codex/gpt-5:high -e box=docker@here$P",
            "coder=codex/gpt-5:high: 'codex' is no agent known here: claude, script\n  hint: ",
        ),
        ("-f boxed $A -e box", "-e 'box': expected <role>=<backend>[@<provider>][/<workdir>]"),
        ("-f boxed $A -e x-y=docker@here$P", "-e 'x-y=docker@here$P': the role 'x-y' is not an identifier"),
        ("-f boxed $A -e box=dokcer$P", "-e 'box=dokcer$P': 'dokcer' is not a backend; one of local, ssh, docker, swarm, "),
        ("-f boxed $A -e box=docker@$P", "-e 'box=docker@$P': an @ is written only before a provider; write box=docker/x"),
        ("-f boxed $A -e box=docker@here", "-e 'box=docker@here': expected <role>=<backend>[@<provider>][/<workdir>]; "),
        ("-f boxed $A -e ,box=docker@here$P", "-e ',box=docker@here$P': an item is empty"),
        ("-f boxed $A -e box=local@x$P", "-e 'box=local@x$P': local takes no provider; write box=local/<workdir>"),
        (
            "-f boxed $A -e box=docker@[me@host]$P",
            "-e 'box=docker@[me@host]$P': only ssh takes a host nobody saved; docker@<name> names a docker runtime saved on the \
             runtimes page of /settings",
        ),
        ("-f boxed $A -e box=ssh@[-x]$P", "-e 'box=ssh@[-x]$P': '-x' is not an ssh host, as [user@]host[:port]"),
        (
            "-f boxed $A -e box=ssh$P",
            "-e 'box=ssh$P': ssh needs a host: ssh@<saved host>/x, or ssh@[user@host:port]/x for a host not saved",
        ),
        (
            "-f boxed $A -e box=swarm@local$P",
            "-e 'box=swarm@local$P': swarm on this machine names no provider; write box=swarm/x",
        ),
        (
            "-f boxed $A -e box=docker@here/~/a/../../x",
            "-e 'box=docker@here/~/a/../../x': ~/a/../../x climbs out of the home directory it is under",
        ),
        ("-f boxed $A -e box=docker@here$P -p foo", "-p 'foo': expected <key>=<value>"),
        ("-f boxed $A -e box=docker@here$P -p budget.cost=5", "-p budget.cost=5: not a limit; one of budget.duration"),
        ("-f boxed $A -e box=docker@here$P -p budget=5", "-p: a budget is given a limit at a time, as budget.duration=10m"),
        ("-f boxed $A -e box=docker@here$P -p budget.duration=1m", "-p: 'budget.duration' is given twice"),
    ]);
}

#[test]
fn places_that_cannot_be_had() {
    let place = Place::new();
    place.table(&[
        ("-f boxed $A -e box=docker@nope$P", "-e 'box=docker@nope$P': no docker runtime is saved as 'nope'; "),
        (
            "-f boxed $A -e box=docker@gpubxo$P",
            "-e 'box=docker@gpubxo$P': no docker runtime is saved as 'gpubxo'; save one on the runtimes page of /settings, or \
             write box=docker/x for docker on this machine\n  hint: -e box=docker@gpubox$P\n  hint: # in ",
        ),
        (
            "-f boxed $A -e box=docker@here/no/such/dir",
            "docker@here has no /no/such/dir to run a container: no directory to give the container\n",
        ),
        ("-f boxed $A -e box=docker@unsaved$P", "docker@unsaved: ssh:nohost: ssh host 'nohost' not found"),
        (
            "-f small $A -e box=docker@device$P",
            "could not start a container of busybox:latest on unix:///var/run/docker.sock: error gathering device information",
        ),
        ("-f boxed8 $A -e box=docker@gpubox$P", "docker@gpubox has 4 of 4 CPUs free, and 'box' asks for 8\n"),
        ("-f mem16 $A -e box=docker@gpubox$P", "docker@gpubox has 8 GiB of 8 GiB of memory free, and 'box' asks for 16 GiB\n"),
        (
            "-f gpu $A -e box=docker@here$P",
            "docker@here has 0 of 0 GPUs free, and 'box' asks for 1 (its daemon lists no GPU by name: say which in ",
        ),
        (
            "-f two $A -e box=docker@one$P -e other=docker@one$P",
            "docker@one runs 0 of the 1 containers it may, and 'box' and 'other' ask for 2",
        ),
        (
            "-f small -a coder=claude/scripted-1:low -e box=docker@inbox$P",
            "docker@inbox: claude's harness cannot run where its harness setting (env) says: claude is not installed on \
             docker@inbox: npm i -g @anthropic-ai/claude-code there, or set the harness of the runtime it is on to local\n  hint: # in ",
        ),
        (
            "-f boxed -a coder=claude/scripted-1:low -e box=docker@beside$P",
            "docker@beside: claude's harness cannot run where its harness setting (docker:x) says: no docker runtime is saved as 'x'\n  hint: # in ",
        ),
        (
            "-f boxed $A -e box=docker@far$P",
            "could not connect to docker@far: could not ask tcp://127.0.0.1:1 what it has: 127.0.0.1:1: Connection refused",
        ),
        ("-f boxed $A -e box=slurm@x$P", "-e 'box=slurm@x$P': environments on slurm are not supported yet; use docker or swarm"),
        ("-f boxed $A -e box=swarm@x$P", "-e 'box=swarm@x$P': no swarm runtime is saved as 'x'; save one on the runtimes page of /settings, or write box=swarm/x for swarm on this machine"),
        ("-f boxed $A -e box=ssh@x$P", "-e 'box=ssh@x$P': environments on ssh are not supported yet; use docker"),
        ("-f boxed $A -e box=slurm$P", "-e 'box=slurm$P': environments on slurm are not supported yet; use docker"),
        ("-f boxed $A -e box=local$P", "-e 'box=local$P': environments on local are not supported yet; use docker"),
    ]);
}

#[test]
fn a_daemon_that_is_not_there() {
    let said = "could not connect to docker@gone: could not ask unix:///nowhere.sock what it has: /nowhere.sock: No such file";
    Place::new().table(&[("-f boxed $A -e box=docker@gone$P", said)]);
}

#[test]
fn an_image_that_cannot_be_had_is_refused_in_dockers_words() {
    let said = "could not start a container of 127.0.0.1:1/hmz-test/none:1 on unix:///var/run/docker.sock: ";
    Place::new().table(&[("-f noimage $A -e box=docker@here$P", said)]);
}

#[test]
fn the_hint_of_docker_with_nothing_saved_can_be_pasted() {
    let place = Place::new();
    place.home.settings("runtimes: {}\n");
    let finished = place.exec("-f small -a coder=claude/scripted-1:low -e box=docker$P");
    let err = finished.err();
    let said =
        "hmz exec: error: docker: claude's harness cannot run where its harness setting (env) says: claude is not installed on ";
    place.refused(finished, said);
    let mut hints = err.split("  hint: ").skip(1);
    let settings: String = hints
        .next()
        .expect("a hint for settings.yaml")
        .lines()
        .map(|l| format!("{}\n", l.strip_prefix("        ").unwrap_or(l)))
        .collect();
    let environment = hints.next().expect("a hint for -e").trim();
    place.home.settings(&settings);
    eventually("the settings are seen", LIMIT, || {
        place.home.hmz(["get", "runtimes", "-o", "name"]).run().out().contains("docker:here").then_some(())
    });
    let finished = place.exec(&format!("-f small $A {environment}")).ok();
    assert_eq!(finished.out(), "it ran\n");
}

#[test]
fn manifests_that_are_wrong() {
    let place = Place::new();
    let box_with = |more: &str| {
        format!(
            "apiVersion: hmz/v1\nkind: Environment\nmetadata: {{name: box}}\nspec:\n  runtime: docker:here\n  workdir: .\n{more}\n"
        )
    };
    for (text, said) in [
        (box_with("  imgae: x"), "m.yaml:7:3: unknown field 'imgae', did you mean 'image'?\n"),
        (box_with("  cpus: 1\n  cpus: 2"), "m.yaml:8:3: the key 'cpus' is there twice, first on line 7\n"),
        (box_with("  memory: lots"), "m.yaml:7:11: 'lots' must be a number and unit, such as 64G or 512M\n"),
        (box_with("  image: [a"), "m.yaml:7:10: unclosed bracket '['\n"),
        (box_with("").replace("hmz/v1", "hmz/v2"), "m.yaml:1:13: apiVersion 'hmz/v2' is not known, expected 'hmz/v1'\n"),
        (
            box_with("").replace("Environment", "Envrionment"),
            "m.yaml:2:7: 'Envrionment' is not a kind, did you mean 'Environment'?\n",
        ),
    ] {
        place.project.write("m.yaml", &text);
        let applied = place.home.hmz(["apply", "-f", "m.yaml"]).cwd(place.project.dir()).run();
        place.refused(applied, &format!("hmz apply: error: {said}"));
    }
}

#[test]
fn an_entry_of_the_settings_that_cannot_be_read_is_refused_with_its_place() {
    let place = Place::new();
    place.home.settings("runtimes:\n  docker:\n    here:\n      endpoint: local\n      harnes: local\n");
    let file = place.home.hmz_home().join("settings.yaml");
    let said = format!(
        "the docker host 'here' cannot be read; fix or remove it: runtimes.docker.here in settings.yaml ({}:5:7: unknown field 'harnes', \
         did you mean 'harness'?)\n",
        file.display()
    );
    place.table(&[("-f boxed $A -e box=docker@here$P", &said)]);
}

#[test]
fn a_runtime_that_the_settings_do_not_give_for_a_mistake_in_them() {
    let place = Place::new();
    let missing = "-e 'box=docker@nope$P': no docker runtime is saved as 'nope'; ";
    let words = "-f boxed $A -e box=docker@nope$P";
    let hinted = |hint: &str| {
        let hint = format!("\n  hint: {hint}");
        eventually("the settings are read", LIMIT, || {
            let finished = place.exec(words);
            let seen = finished.err().contains(&hint);
            place.refused(finished, missing);
            seen.then_some(())
        });
    };
    let file = place.home.hmz_home().join("settings.yaml");
    hinted(&format!("# in {}\n        runtimes:\n          docker:\n            nope:\n", file.display()));
    place.home.settings("runtimes: [docker\n");
    hinted("settings.yaml is not read as it stands: ");
    place.home.settings("runtimes:\n  dokcer:\n    nope: {endpoint: local}\n");
    hinted("settings.yaml is not read as it stands: ");
}

#[test]
fn parameters_the_flow_does_not_have() {
    let place = Place::new();
    let text = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: deep}\nspec:\n  environments: {box: {}}\n  params: {depth: , width: \
                {default: 2}}\n  steps: [{exec: {environment: box, command: 'echo {{ params.depth }}{{ params.width }}'}}]\n";
    place.project.write(".hmz/flows/deep.yaml", text);
    place.table(&[
        ("-f boxed $A -e box=docker@here$P -p tries=3", "boxed has no parameter 'tries'; it has none\n"),
        (
            "-f deep -e box=docker@here$P -p dpeth=3",
            "deep has no parameter 'dpeth'; its parameters are 'depth', 'width'\n  hint: -p depth=3\n",
        ),
        ("-f deep -e box=docker@here$P", "deep needs a value for its parameter 'depth'; give it with -p depth=VALUE\n"),
    ]);
}

#[test]
fn texts_of_a_flow_that_cannot_be_rendered() {
    let place = Place::new();
    let flow = |text: &str| {
        format!(
            "apiVersion: hmz/v1\nkind: Flow\nmetadata: {{name: wrong}}\nspec:\n  environments: {{box: {{}}}}\n  params: {{n: {{default: \
             1}}}}\n  steps:\n    - exec: {{environment: box, command: '{text}'}}\n"
        )
    };
    let file = place.project.file(".hmz/flows/wrong.yaml").display().to_string();
    for (text, said) in [
        ("echo {{ tsk }}", ":8:50: 'tsk' is not one of task, params, steps, last, did you mean 'task'?\n"),
        ("echo {{ params.m }}", ":8:50: the flow declares no parameter 'm'\n"),
        ("echo {{ steps.one }}", ":8:50: no step before it has the id 'one'\n"),
        ("echo {{ task", ":8:50: unexpected end of input, expected end of variable block\n"),
    ] {
        place.project.write(".hmz/flows/wrong.yaml", &flow(text));
        place.table(&[("-f wrong -e box=docker@here$P", &format!("{file}{said}"))]);
        let applied = place.home.hmz(["apply", "-f", &file]).run();
        place.refused(applied, &format!("hmz apply: error: {file}{said}"));
    }
    // what only this run's values can tell is told of the step
    place.project.write(".hmz/flows/wrong.yaml", &flow("echo {{ params.n.x.y }}"));
    place.table(&[("-f wrong -e box=docker@here$P", "wrong: step 1: `params.n.x` is undefined")]);
    place.project.write(".hmz/flows/wrong.yaml", &flow("echo {{ task | nofilter }}"));
    place.table(&[("-f wrong -e box=docker@here$P", "wrong: step 1: filter nofilter is unknown")]);
}

#[test]
fn what_is_not_there_is_met_with_what_was_meant() {
    let place = Place::new();
    let said = |words: &[&str], code: i32, said: &str| drop(place.home.hmz(words).run().expect_code(code).says(said));
    said(&["get", "evns"], 2, "hmz get: error: 'evns' is not a kind; did you mean 'envs'?\n");
    said(&["get", "runtime", "docker@gpubxo"], 1, "there is no runtime 'docker:gpubxo'; did you mean 'docker:gpubox'?\n");
    said(&["describe", "flow", "nothing-like-it"], 2, "there is no flow 'nothing-like-it'");
    let text = "apiVersion: hmz/v1\nkind: Environment\nmetadata: {name: e}\nspec: {runtime: 'docker:gpubxo', workdir: .}\n";
    place.project.write("env.yaml", text);
    let file = place.project.file("env.yaml").display().to_string();
    let settings = place.home.hmz_home().join("settings.yaml");
    let hints = format!("  hint: did you mean docker@gpubox?\n  hint: # in {}\n", settings.display());
    said(&["apply", "-f", &file], 2, &hints);
    drop(place.home.hmz(["delete", "env/e"]).run().ok());
}
