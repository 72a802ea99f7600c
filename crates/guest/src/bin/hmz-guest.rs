//! The guest alone, for tests that need a pid 1 before there is an `hmz`: `hmz-guest guest --socket PATH …`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    hmz_guest::main(std::env::args_os().skip(2))
}
