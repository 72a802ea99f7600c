//! The guest alone, which is what a released `hmz` puts into a box: `hmz-guest guest --socket PATH …`, the words `hmz` takes
//! too.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    hmz_guest::main(std::env::args_os().skip(2))
}
