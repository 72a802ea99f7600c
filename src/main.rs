//! hmz
fn main() {}
