//! What this program does as somebody's child: loops that time themselves, natively or supervised, and a source of bytes.

use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Does what the words say when they name a piece of work; prints nanoseconds.
pub fn play(words: &[String]) -> Option<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let nanos = match words.as_slice() {
        ["spawn", times, program] => spawn(number(times), program),
        ["open", times, file] => open(number(times), file),
        ["drink", bytes, program] => drink(number(bytes), program),
        ["pour", bytes] => {
            pour(number(bytes));
            return Some(ExitCode::SUCCESS);
        }
        _ => return None,
    };
    println!("{nanos}");
    Some(ExitCode::SUCCESS)
}

fn number(word: &str) -> usize {
    word.parse().unwrap_or_else(|e| panic!("{word}: {e}"))
}

/// The median time of starting a program and waiting for its end. What it writes goes to a file, as an agent has it.
fn spawn(times: usize, program: &str) -> u128 {
    let output = std::fs::File::create("output").expect("a file in the project");
    let once = || {
        let mut command = Command::new(program);
        let again = || output.try_clone().expect("a descriptor");
        command.stdin(Stdio::null()).stdout(again()).stderr(again());
        let began = Instant::now();
        let status = command.status().unwrap_or_else(|e| panic!("{program}: {e}"));
        assert!(status.success(), "{program}: {status}");
        began.elapsed().as_nanos()
    };
    let warm = times / 10 + 1;
    let mut took: Vec<u128> = (0..warm + times).map(|_| once()).skip(warm).collect();
    took.sort_unstable();
    took[took.len() / 2]
}

/// The mean time of opening a file and closing it.
fn open(times: usize, file: &str) -> u128 {
    let once = || drop(std::fs::File::open(file).unwrap_or_else(|e| panic!("{file}: {e}")));
    (0..times / 10).for_each(|_| once());
    let began = Instant::now();
    (0..times).for_each(|_| once());
    began.elapsed().as_nanos() / times as u128
}

/// The time from starting `program pour` to the end of its output.
fn drink(bytes: usize, program: &str) -> u128 {
    let began = Instant::now();
    let mut child = Command::new(program)
        .args(["pour", &bytes.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    let mut from = child.stdout.take().expect("a pipe");
    let (mut buffer, mut got) = (vec![0; 64 << 10], 0);
    while let n @ 1.. = from.read(&mut buffer).expect("a read") {
        got += n;
    }
    let status = child.wait().expect("a wait");
    let took = began.elapsed().as_nanos();
    assert!(status.success() && got == bytes, "{status}: {got} of {bytes} bytes");
    took
}

fn pour(bytes: usize) {
    let (block, mut left) = (vec![b'x'; 64 << 10], bytes);
    let mut out = std::io::stdout().lock();
    while left > 0 {
        let n = left.min(block.len());
        out.write_all(&block[..n]).expect("a write");
        left -= n;
    }
    out.flush().expect("a flush");
}
