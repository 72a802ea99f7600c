//! The guest alone, which is what a released `hmz` puts into a box: `hmz-guest guest --socket PATH …`, the words `hmz` takes
//! too, and `hmz-guest script-agent`, the built-in agent in a box.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next() {
        Some(verb) if verb == hmz_script::VERB => hmz_script::main(args),
        _ => hmz_guest::main(args),
    }
}
