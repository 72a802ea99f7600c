//! `hmz wait`: it is not fooled by what was before, or by what is another's.

use crate::Place;

#[test]
fn a_wait_sees_what_is_declared_and_says_what_it_saw() {
    let place = Place::make();
    place.environment("box.yaml", "box", ", cpus: 0.5");
    place.environment("other.yaml", "other", "");
    drop(place.hmz("apply -f box.yaml -f other.yaml --wait").ok());
    let ids = place.home.containers();
    // one that is another now is ready when the new one is
    place.environment("box.yaml", "box", ", cpus: 0.25");
    drop(place.hmz("apply -f box.yaml").ok());
    drop(place.hmz("wait --for=condition=Ready env/box --timeout 2m").ok());
    let now = place.home.containers();
    assert_eq!((now.len(), now.iter().filter(|id| ids.contains(id)).count()), (2, 1));
    assert_eq!(place.hmz("wait --for=jsonpath={.status.used}=docker:here env/box").ok().out(), "env/box condition met\n");
    assert_eq!(
        place.hmz("wait --for=jsonpath=.status.share.cpus=0.25 env/box --timeout 2m").ok().out(),
        "env/box condition met\n"
    );
    drop(place.hmz("wait --for=jsonpath={.status.container_id} env/box").ok());
    drop(place.home.hmz(["wait", "--for=jsonpath={.status.conditions[?(@.type==\"Ready\")].status}=True", "env/box"]).run().ok());
    let said = place.hmz("wait --for=jsonpath={.status.used}=docker:nope env/box --timeout 1s").expect_code(1).err();
    assert_eq!(said, "hmz wait: error: env/box: wanted .status.used to be 'docker:nope' within 1s, and it is 'docker:here'\n");
    let said = place.hmz("wait --for=jsonpath={.status.nothing} env/box --timeout 1s").expect_code(1).err();
    assert_eq!(said, "hmz wait: error: env/box: wanted .status.nothing to be there within 1s, and there is none\n");
    let said = place.hmz("wait --for=condition=Ready=false env/box --timeout 1s").expect_code(1).err();
    assert_eq!(said, "hmz wait: error: env/box: wanted Ready False within 1s, and Ready is True (Ready)\n");
    for wrong in ["jsonpath={.a", "jsonpath={.a}b", "jsonpath=a", "Ready", "condition=Ready=maybe"] {
        let _ = place.hmz(&format!("wait --for={wrong} env/box")).expect_code(2);
    }
    // what becomes of another one is no answer
    let mut wait = place.home.hmz(["wait", "--for=condition=Ready=false", "env/box", "--timeout", "2m"]).start();
    let mut gone = place.home.hmz(["wait", "--for=delete", "env/box", "--timeout", "2m"]).start();
    drop(place.hmz("delete env other").ok());
    for waiting in [&mut wait, &mut gone] {
        assert_eq!(waiting.stdout() + &waiting.stderr(), "");
    }
    crate::support::docker::remove(&place.home.containers());
    let done = wait.wait().ok();
    assert_eq!(done.out(), "env/box condition met\n");
    drop(place.hmz("delete env box").ok());
    assert_eq!(gone.wait().ok().out(), "env/box is gone\n");
}
