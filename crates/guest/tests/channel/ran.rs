//! How long a command ran comes home over a stream too.

use crate::harness::{run, sh};
use crate::world::Far;
use hmz_wire::Status;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn a_guest_tells_how_long_a_command_ran() {
    let it = Far::new();
    let client = it.client();
    let (tell, told) = channel();
    // other tests of this process may run commands too
    hmz_wire::observe(move |ran| {
        let _ = tell.send(ran);
    });
    let began = Instant::now();
    assert_eq!(run(&client, sh("sleep 0.3; exit 41")).0, Status::Exited(41));
    let took = began.elapsed();
    let ran = std::iter::from_fn(|| told.recv_timeout(Duration::from_secs(60)).ok());
    let ran = ran.into_iter().find(|ran| ran.status == Status::Exited(41)).expect("it is told");
    assert!(ran.program.ends_with(b"sh") && (Duration::from_millis(300)..=took).contains(&ran.took), "{ran:?}");
}
