//! The three-way merge, and what changes a resource by hand: `label`, `annotate`, `edit`.

use crate::Place;

/// `hmz edit` with an editor that is a line of sed.
fn edit(place: &Place, what: &str, sed: &str) -> crate::support::command::Finished {
    let editor = format!("sed -i -e '{sed}'");
    place.home.hmz(["edit", what]).env("EDITOR", editor).cwd(place.project.dir()).run()
}

#[test]
fn what_others_set_stays_and_drift_of_what_a_manifest_says_is_put_back() {
    let place = Place::make();
    place.environment("box.yaml", "box", ", cpus: 0.5, restart: never");
    drop(place.hmz("apply -f box.yaml --wait").ok());
    assert_eq!(place.hmz("label env/box team=red").ok().out(), "env/box labelled\n");
    assert_eq!(place.hmz("label env box team=red").ok().out(), "env/box unchanged\n");
    let _ = place.hmz("label env/box team=blue").expect_code(2).says("the label 'team' is 'red' already").says("--overwrite");
    assert_eq!(place.hmz("annotate env/box note=x").ok().out(), "env/box annotated\n");
    let _ = place.hmz("annotate env/box hmz/last-applied-").expect_code(2).says("'hmz/last-applied' is hmz's own");
    assert_eq!(edit(&place, "env/box", "s/restart:.*//").ok().out(), "env/box unchanged\n", "never is what is not written");
    assert_eq!(edit(&place, "env/box", "s/cpus: 0.5/cpus: 0.25\\n  restart: always/").ok().out(), "env/box edited\n");
    // drift is told, and put back; what no manifest says stays
    let told = place.hmz("diff -f box.yaml").expect_code(1).out();
    assert!(told.contains("    ~ spec.cpus: 0.25 -> 0.5\n    - spec.restart: always\n"), "{told}");
    drop(place.hmz("apply -f box.yaml --wait").ok());
    let yaml = place.hmz("get env/box -o yaml").ok().out();
    assert!(yaml.contains("cpus: 0.5") && yaml.contains("team: red") && !yaml.contains("restart: always"), "{yaml}");
    assert_eq!(place.hmz("diff -f box.yaml").ok().out(), "");
    let told = place.hmz("diff -f box.yaml --replace").expect_code(1).out();
    assert_eq!(told, "env/box would be configured\n    - metadata.labels.team: red\n    - metadata.annotations.note: x\n");
    drop(place.hmz("apply -f box.yaml --replace").ok());
    assert_eq!(place.hmz("get env/box -o jsonpath={.metadata.labels}").ok().out(), "");
    // what is printed can be applied again, and changes nothing
    let yaml = place.hmz("get env/box -o yaml").ok().out();
    place.project.write("printed.yaml", &yaml);
    assert_eq!(place.hmz("apply -f printed.yaml").ok().out(), "env/box unchanged\n");
    drop(place.hmz("delete env box").ok());
}

#[test]
fn an_edit_that_cannot_be_is_not_stored() {
    let place = Place::make();
    place.environment("box.yaml", "box", "");
    drop(place.hmz("apply -f box.yaml").ok());
    let said = edit(&place, "env/box", "s/runtime:/runtme:/").expect_code(1);
    assert!(said.err().contains("unknown field 'runtme'") && said.err().contains("your text is in "), "{said}");
    let _ = edit(&place, "env/box", "s/name: box/name: other/").expect_code(2).says("name of a resource cannot be changed");
    let _ = edit(&place, "runtime/docker:here", "s/harness: .*/harness: env/").expect_code(2);
    // somebody else is quicker
    let sneak = format!(
        "s/x/x/;w /dev/null' \"$1\"; {} label env/box quick=yes >&2; sed -i -e '$a\\ \\ cpus: 1",
        place.home.program().display()
    );
    let _ =
        edit(&place, "env/box", &sneak).expect_code(1).says("it was changed by somebody else meanwhile").says("your text is in ");
    let _ = edit(&place, "flow/boxed", "s/a/b/").expect_code(2).says("flow/boxed is not stored");
    let _ = edit(&place, "env/none", "s/a/b/").expect_code(1).says("there is no environment 'none'");
    drop(place.hmz("delete env box").ok());
}
