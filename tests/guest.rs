//! What a box is given to run: the guest's own program where one is embedded, as in what is released and in `make test`;
//! otherwise, as in a plain `cargo test`, hmz itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "the failures of a test are panics")]

mod support;

use support::docker::docker;
use support::home::TestHome;
use support::{LIMIT, runs};

#[cfg(guest_embedded)]
const EMBEDDED: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/guest")));
#[cfg(not(guest_embedded))]
const EMBEDDED: Option<&[u8]> = None;

#[test]
fn a_box_runs_the_guests_own_program_where_there_is_one() {
    // whoever embeds one for the tests says so: they are not to run without by mistake
    if std::env::var_os("HMZ_TEST_GUEST").is_some() {
        assert!(EMBEDDED.is_some(), "HMZ_GUEST named no program when this was built");
    }
    let home = TestHome::new();
    let project = home.project("p");
    runs::environment(&home, "box", "busybox:latest", &project);
    let containers = home.containers();
    let [container] = containers.as_slice() else { panic!("{containers:?}") };
    let source = "{{range .Mounts}}{{if eq .Destination \"/.hmz/hmz\"}}{{.Source}}{{end}}{{end}}";
    let given = docker(&["inspect", "-f", source, container]);
    let wanted = EMBEDDED.map_or_else(|| std::fs::read(home.program()).unwrap(), <[u8]>::to_vec);
    assert!(std::fs::read(given.trim()).unwrap() == wanted, "{given} is another program");
    let finished = runs::sh(&home, "box", "echo in $((6 * 7)); exit 3").run().expect_code(3);
    assert_eq!(finished.out(), "in 42\n");
    drop(home.hmz(["delete", "env/box"]).run().ok());
    home.assert_no_container_left(LIMIT);
}
