//! hmz
mod output;

fn main() {}
