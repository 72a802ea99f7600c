//! The first process of a test's box, in the guest's place. Without a word it stays; files in the workdir ask for more:
//! `tell` has it write its arguments, user and environment to `told`, `exit` holds the status to end with, `eat` has it
//! take memory until it is killed.

use std::fmt::Write as _;

fn main() {
    if std::fs::exists("tell").unwrap_or(false) {
        let mut told = String::new();
        for arg in std::env::args() {
            let _ = writeln!(told, "arg {arg}");
        }
        for (name, value) in std::env::vars() {
            let _ = writeln!(told, "env {name}={value}");
        }
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        for line in
            status.lines().filter(|l| ["Uid:", "Gid:", "CapEff:", "CapBnd:", "NoNewPrivs:"].iter().any(|p| l.starts_with(p)))
        {
            let _ = writeln!(told, "{}", line.replace('\t', " "));
        }
        let _ = writeln!(told, "pid {}", std::process::id());
        let _ = std::fs::write("told.part", told).and_then(|()| std::fs::rename("told.part", "told"));
    }
    if let Ok(status) = std::fs::read_to_string("exit") {
        std::process::exit(status.trim().parse().unwrap_or(1));
    }
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    while std::fs::exists("eat").unwrap_or(false) {
        eaten.push(vec![1; 1 << 20]);
    }
    loop {
        std::thread::park();
    }
}
