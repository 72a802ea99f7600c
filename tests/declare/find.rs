//! `get` with selectors and forms of one's own; `label` by selector.

use crate::Place;

#[test]
fn what_is_found_is_what_was_asked_for_in_the_form_that_was_asked_for() {
    let place = Place::make();
    for (name, cpus) in [("a", "0.3"), ("b", "0.2"), ("c", "0.1")] {
        place.environment(&format!("{name}.yaml"), name, &format!(", cpus: {cpus}"));
    }
    drop(place.hmz("apply -f a.yaml -f b.yaml -f c.yaml").ok());
    drop(place.hmz("label envs a b team=red").ok());
    drop(place.hmz("label env/b tier=test").ok());
    let names = |more: &str| place.hmz(&format!("get envs -o name {more}")).ok().out().replace('\n', " ");
    assert_eq!(names("-l team=red"), "env/a env/b ");
    assert_eq!(names("-l team,tier!=test"), "env/a ");
    assert_eq!(names("-l !team"), "env/c ");
    assert_eq!(names("-l team=nobody"), "");
    assert_eq!(names("--field-selector spec.cpus!=0.2,spec.runtime=docker:here"), "env/a env/c ");
    assert_eq!(names("--sort-by .spec.cpus"), "env/c env/b env/a ");
    let out = place.hmz("get envs -l team=red -o custom-columns=NAME:.metadata.name,CPUS:.spec.cpus,TIER:.metadata.labels.tier");
    assert_eq!(out.ok().out(), "NAME   CPUS   TIER\na      0.3    <none>\nb      0.2    test\n");
    let template = r#"jsonpath={range .items[?(@.spec.cpus<0.3)]}{.metadata.name}={.spec.cpus}{"\n"}{end}"#;
    let out = place.home.hmz(["get", "envs", "-o", template]).run().ok().out();
    assert_eq!(out, "b=0.2\nc=0.1\n");
    assert_eq!(place.hmz("get env/a -o jsonpath={.spec.runtime}").ok().out(), "docker:here");
    let _ = place.hmz("get envs -o jsonpath={.a").expect_code(2).says("column 4: a '}' is missing");
    let _ = place.hmz("get envs -o yml").expect_code(2).says("custom-columns=…");
    let _ = place.hmz("get envs -l a=b=c").expect_code(2).says("-l 'a=b=c'");
    let _ = place.hmz("get envs --field-selector x").expect_code(2);
    // a slip selects nothing, and deletes nothing
    let slip = "Environment.metadata has no field 'nmae'; did you mean 'name'?";
    let _ = place.hmz("delete envs --field-selector metadata.nmae!=zzz").expect_code(2).says(slip);
    let _ = place.hmz("get envs --sort-by .nope").expect_code(2).says("--sort-by: Environment has no field 'nope'");
    let _ = place.hmz("delete envs -l team>1").expect_code(2).says("-l 'team>1'");
    assert_eq!(names(""), "env/a env/b env/c ");
    // what is there of what is named, and what is not
    let some = place.hmz("get env/a run/absent -o name").expect_code(1);
    assert_eq!((some.out().as_str(), some.err().as_str()), ("env/a\n", "hmz get: error: there is no run 'absent'\n"));
    let none = place.hmz("get runs -o yaml").ok().out();
    assert!(none.contains("kind: List\n") && none.contains("items: []\n"), "{none}");
    // a name that is made at each apply names none that is there
    place.project.write("gen.yaml", "apiVersion: hmz/v1\nkind: Run\nmetadata: {generateName: g-}\nspec: {flow: boxed}\n");
    let _ = place.hmz("delete -f gen.yaml").expect_code(2).says("run/g-? has a generateName: which one is meant?");
    // by hand a set is left, and not joined
    let _ = place.hmz("label env/a hmz/set=web --overwrite").expect_code(2).says("hmz apply -f FILE --set NAME");
    let _ = place.hmz("get envs -w -o jsonpath={.a}").expect_code(2).says("a watch is printed as it comes");
    assert_eq!(place.hmz("label envs -l team=red team-").ok().out(), "env/a labelled\nenv/b labelled\n");
    assert_eq!(names("-l team"), "");
    let _ = place.hmz("label envs -l team=red").expect_code(2);
    let _ = place.hmz("label env/none x=y").expect_code(1).says("there is no environment 'none'");
    // one that is not selected any more is gone from a watch
    let mut watch = place.home.hmz(["get", "envs", "-w", "-o", "name", "-l", "tier"]).start();
    watch.wait_for("env/b\n");
    drop(place.hmz("label env/a tier=x").ok());
    watch.wait_for("env/a\n");
    drop(place.hmz("label env/b tier-").ok());
    watch.wait_for("env/b deleted\n");
    drop(watch);
    drop(place.hmz("delete envs a b c").ok());
}

#[test]
fn a_broken_flow_of_the_project_is_told_and_not_passed_over() {
    let place = Place::make();
    place.project.write(".hmz/flows/boxed.yaml", "apiVersion: hmz/v1\nkind: Flow\nmetadata: {name: boxed}\nspec: {stps: []}\n");
    let exec = "exec -f boxed -a script/./s -e box=docker@here/tmp x";
    let _ = place.hmz(exec).expect_code(2).says("/.hmz/flows/boxed.yaml:4:8: unknown field 'stps', did you mean 'steps'?");
    let _ = place.hmz("get flow boxed").expect_code(2).says("boxed.yaml:4:8");
    assert!(!place.hmz("get flows -o name").ok().out().contains("flow/boxed"));
}
