//! Runs that are applied: waited for, run again, replaced, cancelled.

use crate::Place;

/// A run of the script agent.
fn run(place: &Place, metadata: &str, steps: &str, task: &str) {
    place.project.write("steps.yaml", steps);
    place.project.write(
        "run.yaml",
        &format!(
            "apiVersion: hmz/v1\nkind: Run\nmetadata: {metadata}\nspec:\n  flow: boxed\n  task: {task}\n  agents: {{coder: \
             script/steps.yaml}}\n  environments: {{box: {{runtime: 'docker:here', workdir: ., image: 'busybox:latest'}}}}\n"
        ),
    );
}

#[test]
fn an_apply_waits_for_a_run_and_ends_as_it_does() {
    let place = Place::make();
    run(&place, "{name: r}", "- say: done\n", "a");
    assert_eq!(place.hmz("apply -f run.yaml --wait --timeout 2m").ok().out(), "run/r created\n");
    // one that has ended is not run again, but by asking for it
    assert_eq!(place.hmz("apply -f run.yaml --wait").ok().out(), "run/r unchanged\n");
    assert_eq!(place.hmz("diff -f run.yaml").ok().out(), "");
    let again = place.hmz("rerun run/r").ok().out();
    let name = again.strip_suffix(" created\n").unwrap();
    assert!(name.starts_with("run/r-"), "{again}");
    drop(place.hmz(&format!("wait --for=condition=Complete {name} --timeout 2m")).ok());
    assert_eq!(place.hmz("rerun r --name second").ok().out(), "run/second created\n");
    let _ = place.hmz("rerun r --name r").expect_code(2).says("run/r is there already");
    // the one that is there stays as it is
    drop(place.hmz("label run/r from=r").ok());
    let _ = place.hmz("rerun r --name second").expect_code(2).says("run/second is there already");
    let second = place.hmz("get run second -o json").ok().out();
    assert!(!second.contains("\"from\""), "{second}");
    drop(place.hmz("label run/r from-").ok());
    let _ = place.hmz("rerun nobody").expect_code(1).says("there is no run 'nobody'");
    // another spec is refused, and told beforehand; or it is begun anew
    run(&place, "{name: r}", "- fail: no\n", "b");
    for verb in ["diff", "apply"] {
        let said = place.hmz(&format!("{verb} -f run.yaml")).expect_code(2);
        assert!(
            said.err().contains("it has started, so what it does cannot be changed") && said.err().contains("--replace"),
            "{said}"
        );
    }
    let told = place.hmz("diff -f run.yaml --replace").expect_code(1).out();
    let expected = "run/r would be replaced\n    ~ spec.task: a -> b\n    would start container 'box' of busybox:latest on docker:here\n    \
                    would run flow 'boxed'\n";
    assert_eq!(told, expected);
    let failed = place.hmz("apply -f run.yaml --replace --wait --timeout 2m").expect_code(1);
    assert_eq!(failed.out(), "run/r replaced\n");
    assert!(failed.err().contains("run/r has ended (Failed"), "{failed}");
}

#[test]
fn a_run_is_cancelled_and_one_of_a_generated_name_is_new_each_time() {
    let place = Place::make();
    run(&place, "{generateName: g-}", "- wait_for: never\n", "a");
    let told = place.hmz("diff -f run.yaml").expect_code(1).out();
    assert!(told.starts_with("run/g-? would be created\n") && told.ends_with("would run flow 'boxed'\n"), "{told}");
    let one = place.hmz("apply -f run.yaml").ok().out().replace(" created\n", "");
    let other = place.hmz("apply -f run.yaml").ok().out().replace(" created\n", "");
    assert!(one.starts_with("run/g-") && one != other, "{one} {other}");
    drop(place.hmz(&format!("wait --for=condition=Running {one} --timeout 2m")).ok());
    let late = place.hmz("apply -f run.yaml --wait --timeout 1s").expect_code(1);
    assert!(late.err().contains("wanted Complete True within 1s, and "), "{late}");
    assert_eq!(place.hmz(&format!("cancel {one}")).ok().out(), format!("{one} cancelled\n"));
    assert_eq!(place.hmz(&format!("cancel {one}")).ok().out(), format!("{one} has ended already (Cancelled)\n"));
    assert_eq!(place.hmz(&format!("cancel {other} --no-wait")).ok().out(), format!("{other} cancelled\n"));
    let _ = place.hmz("cancel run/none").expect_code(1).says("there is no run 'none'");
    let _ = place.hmz("cancel env/box").expect_code(2).says("'env/box' is an environment and not a run");
}
