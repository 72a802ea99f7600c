//! The second box is a container that runs already: nothing of it is started, counted, limited or stopped.

use super::provider::Provider;
use super::support::docker::docker;
use super::support::far::Far;
use super::support::held::Held;
use super::support::home::TestHome;
use super::support::processes::Process;
use super::support::project::{BUGGY, Project};
use super::support::runs::{boxed_in, script};
use super::support::user::User;
use super::support::{LIMIT, agent, eventually};
use super::{SMALL, WAITS, by_role, exec, home, provider, the_main_job, until};

/// A home whose runtime `work` has its harnesses in a container that runs, with a project that both have.
struct Scene {
    home: TestHome,
    held: Held,
    /// The name of the runtime that is the container.
    name: String,
    project: Project,
}

impl Scene {
    /// Of that image, with these words of `docker run` and these fields of the runtime besides.
    fn new(made: TestHome, image: &str, words: &[&str], fields: &str) -> Self {
        let project = made.project("p");
        let mount = format!("{0}:{0}", project.path());
        let held = Held::start(&made, image, &[&["-v", &mount], words].concat());
        let settings = format!(", container: {}{fields}", held.name);
        let (home, name) = home(made, &settings);
        // a container that is not ours has no lease
        let file = home.hmz_home().join("settings.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        home.settings(&text.replace(&format!("lease: 20s{settings}"), &settings[2..]));
        boxed_in(&home, "small", SMALL);
        Self { home, held, name, project }
    }

    fn small() -> Self {
        Self::new(TestHome::new(), SMALL, &[], "")
    }

    fn top(&self, id: &str) -> String {
        docker(&["top", id, "-eo", "pid,args"])
    }

    #[track_caller]
    fn assert_left(&self) {
        self.home.assert_nothing_left(&[]);
        self.held.assert_left(&self.home);
    }
}

#[test]
fn a_cli_in_a_container_that_runs_has_its_commands_in_the_box_and_leaves_no_trace() {
    let scene = Scene::small();
    let (home, project) = (&scene.home, &scene.project);
    let before = scene.held.started();
    let fenced = "- run: touch /etc/out 2>/dev/null || echo fenced\n- run: cd /tmp; pwd; exit 3\n";
    let agent = script(home, "s", &WAITS.replace("- say: it ran\n", &format!("{fenced}- say: it ran\n")));
    let running = exec(home, "small", &agent, project).start();
    until(project, "up");
    let first = by_role(home, "box");
    assert!(first[0].starts_with(project.read("up").trim()), "the command is in the role's box");
    let (there, here) = (scene.top(&scene.held.name), scene.top(&first[0]));
    assert!(there.contains("script-agent") && !here.contains("script-agent"), "{there}\n{here}");
    // what stands for it on the daemon was never started
    let mark = by_role(home, "harness");
    assert_eq!(docker(&["inspect", "-f", "{{.State.Status}}", &mark[0]]), "created");
    project.write("go", "");
    let done = running.wait().ok().says(&format!("coder's harness runs on the runtime docker:{}", scene.name));
    assert_eq!(done.out(), "it ran\n");
    assert!(done.err().contains("fenced"), "{done}");
    assert_eq!((project.read("parent").trim(), project.read("made.txt").as_str()), ("hmz", "here"));
    scene.assert_left();
    assert_eq!(scene.held.started(), before, "it was started anew, or limited");
}

/// The main job in a container that runs, made with these words besides.
fn the_real_claude(made: TestHome, words: &[&str], fields: &str) {
    let provider: Provider = provider();
    let variables = agent::variables(&provider.url()).into_iter().map(|(name, value)| format!("{name}={value}"));
    let variables: Vec<String> = variables.flat_map(|variable| ["-e".to_owned(), variable]).collect();
    let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
    let scene = Scene::new(made, &agent::image(), &[&["--network=host"], &variables[..], words].concat(), fields);
    the_main_job(&scene.home, &provider, &scene.name, &scene.project, || scene.held.name.clone());
    scene.assert_left();
}

#[test]
fn the_real_claude_works_from_there() {
    the_real_claude(TestHome::new(), &[], "");
}

#[test]
fn it_does_for_an_ordinary_user_under_a_wrapper_too() {
    let made = TestHome::of(User::get());
    let user = format!("{0}:{0}", made.uid());
    let fields = format!(", exec_user: '{user}', exec_env: [HOME=/tmp], exec_wrapper: [/usr/bin/env, WRAPPED=yes]");
    the_real_claude(made, &[], &fields);
}

#[test]
fn two_runs_in_one_do_not_meet() {
    let scene = Scene::small();
    let home = &scene.home;
    let agent = script(home, "s", "- run: echo $$ >>up\n- wait_for: go\n- run: pwd >>up\n- say: it ran\n");
    let runs = [(); 2].map(|()| exec(home, "small", &agent, &scene.project).start());
    let both = || (scene.project.file("up").exists() && scene.project.read("up").lines().count() == 2).then_some(());
    eventually("both are at work", LIMIT, both);
    assert_eq!(scene.held.inside("ls -d /.hmz-* | wc -l"), "2");
    scene.project.write("go", "");
    for run in runs {
        assert_eq!(run.wait().ok().out(), "it ran\n");
    }
    scene.assert_left();
}

#[test]
fn one_that_ends_ends_its_run_and_a_killed_runner_leaves_nothing_in_it() {
    let scene = Scene::small();
    let (home, project) = (&scene.home, &scene.project);
    let agent = script(home, "s", "- run: touch up; sleep 300\n- say: never\n");
    let running = exec(home, "small", &agent, project).start();
    until(project, "up");
    let pid = docker(&["inspect", "--format", "{{.State.Pid}}", &by_role(home, "box")[0]]).parse().unwrap();
    let there = Process::of(pid).unwrap().tree();
    home.kill_runner();
    let _ = running.wait().expect_code(1);
    for process in &there {
        process.assert_gone();
    }
    eventually("nothing is left in it", LIMIT, || {
        (scene.held.inside("cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^hmz' || true") == "0").then_some(())
    });
    scene.assert_left();
    std::fs::remove_file(project.file("up")).unwrap();
    let running = exec(home, "small", &agent, project).start();
    until(project, "up");
    let _ = docker(&["kill", &scene.held.name]);
    let finished = running.wait().expect_code(1);
    assert!(finished.err().contains(&format!("the second box of 'box' on docker:{} is gone", scene.name)), "{finished}");
    home.assert_nothing_left(&[]);
}

/// The role is on a daemon as good as another machine's.
#[test]
fn a_box_elsewhere_is_worked_in_from_there() {
    let far = Far::new(std::time::Duration::from_millis(5));
    let home = &far.home;
    let project = home.project("p");
    let held = Held::start(home, SMALL, &["-v", &format!("{0}:{0}", project.path())]);
    let settings = std::fs::read_to_string(home.hmz_home().join("settings.yaml")).unwrap();
    let tls = settings.lines().find(|line| line.trim_start().starts_with("tls:")).unwrap();
    let work = tls.replacen("tls:", "work:", 1).replace("harness: local", "harness: 'docker:held'");
    home.settings(&format!("runtimes:\n  docker:\n{work}\n    held: {{endpoint: local, container: {}}}\n", held.name));
    boxed_in(home, "small", SMALL);
    let agent = script(home, "s", "- run: hostname >up; cat /proc/$PPID/comm >parent\n- run: cat up\n- say: it ran\n");
    let running = exec(home, "small", &agent, &project).start();
    until(&project, "up");
    let box_there = far.containers();
    assert_eq!(running.wait().ok().out(), "it ran\n");
    assert!(box_there.iter().any(|id| id.starts_with(project.read("up").trim())), "{box_there:?}");
    far.assert_nothing_left();
    home.assert_nothing_left(&[]);
    held.assert_left(home);
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let scene = Scene::small();
    let (home, name) = (&scene.home, &scene.name);
    let refused = |project: &Project, agent: &str, said: &str| {
        let finished = exec(home, "small", agent, project).run().expect_code(2);
        assert!(finished.err().contains(said), "{said}\n{finished}");
        assert_eq!(project.read("calc.py"), BUGGY);
        home.assert_nothing_left(&[]);
    };
    let other = home.project("other");
    let claude = "claude/claude-haiku-4-5-20251001:low";
    let agent = script(home, "s", "- run: echo x >calc.py\n- say: no\n");
    let container = &scene.held.name;
    let dir = other.path();
    refused(&other, &agent, &format!("docker@{name} has no {dir}: there is no such directory in the container {container}"));
    let install = "npm i -g @anthropic-ai/claude-code there, or set the harness of the runtime it is on to local";
    refused(&scene.project, claude, &format!("claude is not installed on docker@{name}: {install}"));
    // a directory of that path that is another
    let _ = scene.held.inside(&format!("mkdir -p {dir}"));
    let said =
        format!("coder: its harness runs on docker:{name}, and {dir} there is not the directory of that path on docker:work");
    refused(&other, &agent, &said);
    scene.assert_left();
    docker(&["stop", "-t", "5", container]);
    refused(&scene.project, &agent, &format!("docker@{name}: cannot work in the container {container}: it is not running"));
    docker(&["start", container]);
    scene.assert_left();
}
