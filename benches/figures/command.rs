//! One command of an agent: a program that does nothing, started and waited for, in the container from a supervised
//! process, natively, and through `docker exec`.

use crate::rounds::{compared, median, timed};
use crate::session::{native, supervised};
use crate::support::command::Invocation;
use crate::support::docker;
use crate::table::{Aim, Figure, Unit};
use crate::world::World;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Commands of one process a round.
const TIMES: &str = "200";
/// Calls of `docker exec` a round.
const CALLS: usize = 3;

/// Writes a static program that ends at once with 0: the least an exec can be, the same file on both sides.
pub fn write_true(file: &Path) {
    let (base, code) = (0x40_0000u64, [0x31u8, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]); // xor edi,edi; mov eax,60; syscall
    let size = 120 + code.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    for word in [base + 120, 64, 0] {
        elf.extend(u64::to_le_bytes(word)); // entry, program headers, no section headers
    }
    elf.extend(0u32.to_le_bytes());
    for half in [64u16, 56, 1, 0, 0, 0] {
        elf.extend(half.to_le_bytes());
    }
    elf.extend(1u32.to_le_bytes()); // PT_LOAD
    elf.extend(5u32.to_le_bytes()); // read and execute
    for word in [0, base, base, size, size, 0x1000] {
        elf.extend(u64::to_le_bytes(word));
    }
    elf.extend(code);
    std::fs::write(file, elf).expect("a program");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("a program");
}

/// Measures it.
pub fn measure(rounds: usize) -> Vec<Figure> {
    let world = World::new();
    let project = world.home.project("p");
    let (place, container) = world.environment("box", &project);
    let program = project.file("true");
    write_true(&program);
    let program = program.to_str().expect("text");
    let words = ["spawn", TIMES, program];
    let mut docker = Invocation::new("docker").args(["exec", &container, program]);
    for name in ["PATH", "HOME"] {
        docker = docker.env(name, std::env::var_os(name).unwrap_or_default());
    }
    if let Some(host) = docker::host() {
        docker = docker.env("DOCKER_HOST", host);
    }
    let (mut ours, mut here, mut through) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(supervised(&world.home, &place, &words));
        here.push(native(&place, &words));
        through.push(median(&(0..CALLS).map(|_| timed(&docker).0).collect::<Vec<_>>()));
    }
    vec![
        compared("one command of an agent", Unit::Seconds, &ours, "native", &here, Aim::Ratio(3.0)),
        compared("one command of an agent", Unit::Seconds, &ours, "docker exec", &through, Aim::Ratio(0.01)),
    ]
}
