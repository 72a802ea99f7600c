//! The pipelines: what their files say to run is run, as the runner of each would.

use crate::support::document::file;
use crate::support::home::TestHome;
use crate::support::project::Project;
use serde_json::Value;

/// A checkout on a runner.
struct Checkout {
    home: TestHome,
    project: Project,
}

impl Checkout {
    fn new() -> Self {
        let home = TestHome::new();
        let project = home.project("p");
        std::fs::create_dir_all(project.file("ci")).unwrap();
        std::fs::copy(file("examples/ci/pipeline.sh"), project.file("ci/pipeline.sh")).unwrap();
        let bin = home.root().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::os::unix::fs::symlink(home.program(), bin.join("hmz")).unwrap();
        // what GitHub's runners have, here it only says what it was asked
        std::fs::write(bin.join("gh"), "#!/bin/sh\necho gh \"$@\"\n").unwrap();
        std::fs::set_permissions(bin.join("gh"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        Self { home, project }
    }

    /// Runs the scripts of a job one after another with the variables of the pipeline: the worst exit status, and all that
    /// they printed.
    fn job(&self, variables: &Value, scripts: &[String], of_the_runner: &[(&str, &str)]) -> (i32, String) {
        let (mut worst, mut said) = (0, String::new());
        for script in scripts {
            let said_by = variables.as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap()));
            let done = self.home.shell(script).cwd(self.project.dir()).envs(said_by).envs(of_the_runner.iter().copied()).run();
            worst = worst.max(done.code());
            said.push_str(&done.out());
            said.push_str(&done.err());
        }
        (worst, said)
    }
}

fn pipeline(name: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(file("examples/ci").join(name)).unwrap()).unwrap()
}

fn texts(of: &Value) -> Vec<String> {
    of.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_pipelines_do_what_they_say() {
    let checkout = Checkout::new();
    let (home, project) = (&checkout.home, &checkout.project);
    let github = pipeline("github.yaml");
    let github_job = |job: &str| {
        let steps = github["jobs"][job]["steps"].as_array().unwrap();
        let scripts: Vec<String> = steps.iter().filter_map(|step| Some(step["run"].as_str()?.to_owned())).collect();
        let summary = project.file("summary.md");
        let runner = [("GITHUB_ACTIONS", "true"), ("GITHUB_STEP_SUMMARY", summary.to_str().unwrap()), ("PULL_REQUEST", "7")];
        checkout.job(&github["env"], &scripts, &runner)
    };
    let gitlab = pipeline("gitlab.yaml");
    let gitlab_job = |job: &str| {
        let mut scripts = texts(&gitlab[job]["script"]);
        scripts.extend(gitlab[job].get("after_script").map(texts).unwrap_or_default());
        checkout.job(&gitlab["variables"], &scripts, &[("GITLAB_CI", "true")])
    };
    for name in ["first-run.yaml", "first-run.steps.yaml"] {
        let text = std::fs::read_to_string(file("examples").join(name)).unwrap();
        project.write(&format!("manifests/{name}").replace(".steps.yaml", ".steps"), &text.replace(".steps.yaml", ".steps"));
    }
    std::fs::rename(project.file("calc.py"), project.file("manifests/calc.py")).unwrap();
    std::fs::copy(file("examples/environment.yaml"), project.file("manifests/environment.yaml")).unwrap();

    let (code, said) = github_job("plan");
    assert_eq!(code, 0, "{said}");
    let plan = project.read("plan.md");
    assert!(plan.starts_with("### hmz: what would change in `fleet`\n\n``````text\nenv/box would be created\n"), "{plan}");
    assert_eq!(project.read("summary.md"), plan);
    assert!(said.contains("gh pr comment 7 --body-file plan.md --edit-last --create-if-none"), "{said}");

    let (code, said) = github_job("apply");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("::group::coder is working\n") && said.contains("::endgroup::\n"), "{said}");
    assert!(said.contains("env/box created\n") && said.contains("run/first-run"), "{said}");
    let report = project.read("report.xml");
    assert!(report.contains("<testsuite name=\"fleet\" tests=\"2\" failures=\"0\" errors=\"0\""), "{report}");
    assert!(report.contains("<testcase classname=\"run\" name=\"first-run\""), "{report}");
    let report: Value = serde_json::from_str(&project.read("report.json")).unwrap();
    assert_eq!((report["passed"].as_u64(), report["resources"][0]["name"].as_str()), (Some(2), Some("env/box")));

    // GitLab's finds nothing to do, and shows the same
    let (code, said) = gitlab_job("plan");
    assert_eq!((code, project.read("plan.md").as_str()), (0, "### hmz: nothing would change in `fleet`\n"), "{said}");
    let (code, said) = gitlab_job("apply");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(":hmz_1[collapsed=true]\r\u{1b}[0Kcoder is working\n") && said.contains("section_end:"), "{said}");

    // what cannot be read fails the plan, and is in the report
    project.write("manifests/environment.yaml", "apiVersion: hmz/v1\nkind: Enviroment\n");
    let (code, said) = gitlab_job("plan");
    assert_eq!(code, 2, "{said}");
    let plan = project.read("plan.md");
    assert!(plan.starts_with("### hmz: this would be refused\n") && plan.contains("environment.yaml:2:7"), "{plan}");
    let (code, _) = gitlab_job("apply");
    assert_eq!(code, 2);
    let report = project.read("report.xml");
    assert!(report.contains("errors=\"1\"") && report.contains("environment.yaml:2:7: 'Enviroment' is not a kind"), "{report}");
    // what was merged away goes
    for name in ["environment.yaml", "first-run.yaml"] {
        std::fs::remove_file(project.file(&format!("manifests/{name}"))).unwrap();
    }
    let last = "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: left}\nspec: {environments: {b: {}}, steps: [{exec: {environment: b, command: ls}}]}\n";
    project.write("manifests/flow.yaml", last);
    let (code, said) = gitlab_job("apply");
    assert!(code == 0 && said.contains("env/box pruned\n") && said.contains("run/first-run pruned\n"), "{code} {said}");
    drop(home.hmz(["delete", "flow/left"]).run().ok());
}
