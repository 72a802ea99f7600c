//! Who may work in a box over a stream: who has its key.

use crate::harness::{Boxed, How, eventually, prints, run, sh, words};
use crate::world::{Far, WINDOW_MS, key, on_pipes};
use hmz_api::link::{Dial, Link, StreamLink};
use hmz_wire::{Bytes, Client, ClientError, Fence, Status};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};

#[test]
fn the_first_key_is_the_boxs_and_no_other_opens_it() {
    let it = Far::new();
    let link = it.link(WINDOW_MS).expect("a link");
    let first = it.try_client(link.clone(), None).expect("the first one");
    match it.try_client(StreamLink { key: key(2), ..link.clone() }, None) {
        Err(ClientError::Refused(why)) => assert!(why.contains("the same key"), "{why}"),
        other => panic!("{other:?}"),
    }
    // the right one opens it again, beside the other and after it
    let second = it.try_client(link.clone(), None).expect("the same key");
    drop(first);
    assert_eq!(prints(&second, sh("echo on")), "on");
    drop(second);
    assert_eq!(prints(&it.try_client(link, None).expect("the same key"), sh("echo on")), "on");
}

#[test]
fn a_command_in_the_box_cannot_speak_to_the_first_process() {
    let it = Far::new();
    let client = it.client();
    // it may reach it, and says what an opener says, without the key
    let (command, mut input, mut out, _err) =
        on_pipes(&client, words(&["/.hmz/hmz", "guest", "connect", "--socket", "/.hmz/run/g.sock"]));
    struct Both<'a>(&'a mut std::fs::File, &'a mut std::fs::File);
    impl Read for Both<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(buffer)
        }
    }
    impl Write for Both<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.1.write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    use hmz_wire::channel::handshake::{CHANNEL_VERSION, Open, open};
    let first = Open { version: CHANNEL_VERSION, session: [1; 16], stream: 0, nonce: [2; 32], received: 0 };
    let said = open(&mut Both(&mut out, &mut input), &key(9), &first);
    assert!(matches!(said, Err(hmz_wire::channel::ChannelError::Refused(_))), "{said:?}");
    command.close().expect("the guest");
    // nor does it go on with the session it is part of
    let (status, text) = run(
        &client,
        sh("for i in 1 2 3; do head -c 9 /dev/urandom | /.hmz/hmz guest connect --socket /.hmz/run/g.sock; done; echo on"),
    );
    assert_eq!((status, text.as_str()), (Status::Exited(0), "on\n"));
    assert_eq!(prints(&client, sh("echo on")), "on");
}

#[test]
fn another_in_the_place_of_the_socket_is_not_spoken_to() {
    let it = Far::start("python:3.12-slim", 0);
    let client = it.client();
    let script = "import socket,os
os.unlink('/.hmz/run/g.sock')
s=socket.socket(socket.AF_UNIX); s.bind('/.hmz/run/g.sock'); s.listen()
print('up',flush=True)
c,_=s.accept(); print(c.recv(100))";
    let (command, _input, out, _err) = on_pipes(&client, words(&["python3", "-c", script]));
    let mut lines = BufReader::new(out).lines().map(|l| l.expect("a line"));
    assert_eq!(lines.next().as_deref(), Some("up"));
    match it.try_client(it.link(WINDOW_MS).expect("a link"), None) {
        Err(ClientError::Carrier(why)) => assert!(why.contains("is not its guest's"), "{why}"),
        other => panic!("{other:?}"),
    }
    // it heard nothing
    assert_eq!(lines.next().as_deref(), Some("b''"));
    drop(command);
    assert_eq!(prints(&client, sh("echo on")), "on");
}

#[test]
fn a_session_is_fenced_as_with_descriptors() {
    let it = Far::new();
    let write = vec![Bytes::from(&b"/tmp"[..])];
    let link = it.link(WINDOW_MS).expect("a link");
    let client = it.try_client(link.clone(), Some(Fence { write, required: true })).expect("a fenced session");
    assert_eq!(client.welcome().fence, "full");
    assert_eq!(run(&client, sh("echo x >/tmp/x && cat /tmp/x")).1, "x\n");
    assert_ne!(run(&client, sh("echo x >/etc/x")).0, Status::Exited(0));
    let other = it.try_client(link, None).expect("another");
    assert_eq!(run(&other, sh("echo x >/etc/x")).0, Status::Exited(0));
    // and it cannot end what is not its own
    let (command, _input, out, _err) = on_pipes(&other, sh("echo $$; sleep 1000"));
    let pid = BufReader::new(out).lines().next().expect("a line").expect("a pid");
    assert_ne!(run(&client, sh(&format!("kill -9 {pid}"))).0, Status::Exited(0));
    drop(command);
}

#[test]
fn a_box_that_was_entered_by_its_directory_takes_no_key() {
    let it = Boxed::start(&How { image: "busybox:latest", uid: 0, lease: 0, docker: &["-e", "X=1"] });
    let argv =
        ["/usr/bin/env", "docker", "exec", "-i", &it.name, "/.hmz/hmz", "guest", "connect", "--socket", "/.hmz/run/g.sock"];
    let dial = |key| {
        let env = BTreeMap::from([("PATH".to_owned(), std::env::var("PATH").expect("a PATH"))]);
        Link::Stream(Box::new(StreamLink::new(Dial::Program { argv: argv.map(str::to_owned).to_vec(), env }, key)))
    };
    // a guest without the word for it takes nobody from inside
    assert!(Client::open(&dial(key(1)), false, None).is_err());
    assert_eq!(prints(&it.client(), sh("echo on")), "on");
}

#[test]
fn an_owner_over_a_stream_keeps_a_leased_box() {
    // a machine may be too slow for a short lease: then that box has ended before its owner came, and another is tried
    let owned = [2, 6, 12, 24].into_iter().find_map(|lease| {
        let it = Far::leased("busybox:latest", 0, lease)?;
        let link = Link::Stream(Box::new(it.link(WINDOW_MS)?));
        Some((lease, Client::open(&link, true, None).ok()?, it))
    });
    let (lease, client, it) = owned.expect("a box whose owner came in time");
    // longer than its lease
    assert_eq!(prints(&client, sh(&format!("sleep {}; echo on", lease + 1))), "on");
    client.finish();
    eventually("the box ends with its lease", || it.pid().is_none());
}
