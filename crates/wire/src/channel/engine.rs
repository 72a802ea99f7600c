//! `docker exec -i` by the Engine API: two requests over the daemon's socket, of which the second becomes the stream.

use hmz_api::way::Exec;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest answer, head or body, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// How much of what was complained is kept.
const COMPLAINT: usize = 1 << 10;

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

/// The socket of an endpoint.
///
/// # Errors
/// When it is none here.
pub(crate) fn socket(endpoint: &str) -> io::Result<&Path> {
    let path = endpoint.strip_prefix("unix://").ok_or_else(|| wrong(format!("{endpoint}: only unix:// is reached from here")))?;
    Ok(Path::new(path))
}

/// Executes something in a container; the stream to it.
///
/// # Errors
/// When the daemon is not there, is silent for `patience`, or says no.
pub(crate) fn exec(path: &Path, container: &str, what: &Exec, patience: Duration) -> io::Result<UnixStream> {
    if container.is_empty() || !container.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b)) {
        return Err(wrong("the name of a container has letters, digits, dots, dashes and underscores"));
    }
    let body = serde_json::json!({
        "AttachStdin": true, "AttachStdout": true, "AttachStderr": true, "Tty": false, "Cmd": what.argv,
        "User": what.user.as_deref().unwrap_or_default(), "Env": what.env,
    });
    let made = request(path, &format!("/containers/{container}/exec"), &body, false, patience)?.1;
    let made: serde_json::Value = serde_json::from_slice(&made).map_err(io::Error::other)?;
    let id = made["Id"].as_str().filter(|id| !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric()));
    let id = id.ok_or_else(|| wrong("the daemon's answer has no exec id"))?;
    let start = serde_json::json!({"Detach": false, "Tty": false});
    Ok(request(path, &format!("/exec/{id}/start"), &start, true, patience)?.0)
}

/// Makes a request; its connection and the answer's body, which an upgrade has none of.
fn request(
    path: &Path,
    what: &str,
    body: &serde_json::Value,
    upgrade: bool,
    patience: Duration,
) -> io::Result<(UnixStream, Vec<u8>)> {
    let mut socket = UnixStream::connect(path).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    socket.set_read_timeout(Some(patience))?;
    socket.set_write_timeout(Some(patience))?;
    let body = body.to_string();
    let connection = if upgrade { "Connection: Upgrade\r\nUpgrade: tcp\r\n" } else { "Connection: close\r\n" };
    let head = format!(
        "POST {what} HTTP/1.1\r\nHost: docker\r\n{connection}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes())?;
    let head = read_head(&mut socket)?;
    let mut lines = head.lines();
    let status: u16 = lines
        .next()
        .and_then(|line| line.strip_prefix("HTTP/1.1 ")?.split(' ').next()?.parse().ok())
        .ok_or_else(|| wrong("what answers is no docker daemon"))?;
    if upgrade && status == 101 {
        return Ok((socket, Vec::new()));
    }
    // the connection is closed behind it, or its length is told
    let length = lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, value)| value.trim().parse::<usize>().ok()).unwrap_or(MAX_ANSWER).min(MAX_ANSWER);
    let mut answer = Vec::new();
    (&mut socket).take(length as u64).read_to_end(&mut answer)?;
    if (200..300).contains(&status) && !upgrade {
        return Ok((socket, answer));
    }
    let said: Option<String> =
        serde_json::from_slice::<serde_json::Value>(&answer).ok().and_then(|said| said["message"].as_str().map(str::to_owned));
    Err(wrong(said.unwrap_or_else(|| format!("the daemon answers {status}"))))
}

/// Everything to the empty line, and not a byte more: what follows is the stream.
fn read_head(socket: &mut UnixStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_ANSWER {
            return Err(wrong("the daemon's answer has no end"));
        }
        socket.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Takes the two outputs apart that share an exec's stream: eight bytes before each piece say which it is and how long.
#[derive(Debug, Default)]
pub(crate) struct Deframer {
    head: [u8; 8],
    got: usize,
    left: usize,
    complaint: Vec<u8>,
}

impl Deframer {
    /// What was written to the standard error.
    pub(crate) fn complaint(&self) -> &[u8] {
        &self.complaint
    }

    /// Reads the next bytes of the standard output. After an error that says "not yet" it goes on where it was.
    pub(crate) fn read(&mut self, from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            while self.left == 0 {
                match from.read(&mut self.head[self.got..])? {
                    0 => return Ok(0),
                    n => self.got += n,
                }
                if self.got == self.head.len() {
                    let [kind, a, b, c, len @ ..] = self.head;
                    if kind > 2 || [a, b, c] != [0; 3] {
                        return Err(io::Error::new(io::ErrorKind::InvalidData, "the daemon's stream is not what an exec has"));
                    }
                    self.left = u32::from_be_bytes(len) as usize;
                    self.got = 0;
                }
            }
            let most = self.left.min(buffer.len());
            let n = from.read(&mut buffer[..most])?;
            self.left -= n;
            // no piece has begun since: the head is the one of this piece
            if self.head[0] != 2 || n == 0 {
                return Ok(n);
            }
            let room = COMPLAINT.saturating_sub(self.complaint.len()).min(n);
            self.complaint.extend_from_slice(&buffer[..room]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time, and says "not yet" between them.
    struct Slow<'a>(&'a [u8], bool);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 && !self.0.is_empty() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = buffer.len().min(1);
            self.0.read(&mut buffer[..n])
        }
    }

    #[test]
    fn outputs_are_taken_apart_however_they_come() {
        let bytes = b"\x01\0\0\0\0\0\0\x03abc\x02\0\0\0\0\0\0\x02no\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x01d";
        let mut framed = Deframer::default();
        let (mut slow, mut got, mut buffer) = (Slow(bytes, false), Vec::new(), [0; 64]);
        loop {
            match framed.read(&mut slow, &mut buffer) {
                Ok(0) => break,
                Ok(n) => got.extend_from_slice(&buffer[..n]),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!((got.as_slice(), framed.complaint()), (&b"abcd"[..], &b"no"[..]));
        assert!(Deframer::default().read(&mut &b"HTTP/1.1"[..], &mut buffer).is_err());
    }

    #[test]
    fn a_daemon_that_is_none_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        let ask = |container: &str| {
            exec(&path, container, &Exec::default(), Duration::from_secs(60)).expect_err("no daemon").to_string()
        };
        assert!(ask("c").contains("s: No such file"), "{}", ask("c"));
        assert!(ask("../x").contains("the name of a container"), "{}", ask("../x"));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let answers =
            ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 404 Not Found\r\nContent-Length: 27\r\n\r\n{\"message\":\"no such thing\"}\n"];
        let daemon = std::thread::spawn(move || {
            for answer in answers {
                let (mut peer, _) = listener.accept().expect("a peer");
                let mut head = [0; 64];
                peer.read_exact(&mut head).expect("a request");
                peer.write_all(answer.as_bytes()).expect("it hears");
                // until it has gone
                let _ = io::copy(&mut peer, &mut io::sink());
            }
        });
        assert_eq!(ask("c"), "what answers is no docker daemon");
        assert_eq!(ask("c"), "no such thing");
        daemon.join().expect("it ends");
        assert!(socket("tcp://h:1").expect_err("no").to_string().contains("only unix://"));
    }
}
