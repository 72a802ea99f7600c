//! The supervisor as a program of its own, for the tests.
fn main() -> std::process::ExitCode {
    hmz_anchor::main()
}
