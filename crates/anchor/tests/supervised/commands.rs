//! Commands land in the box and end as they ended there.

use crate::Test;
use crate::world::World;

pub const TESTS: &[Test] = &[
    ("commands_land_in_the_box", commands_land_in_the_box),
    ("missing_and_forbidden", missing_and_forbidden),
];

fn commands_land_in_the_box(world: &World) {
    let out = world.python(
        "print(subprocess.run('hostname; echo $BOX_OWN; pwd', shell=True, capture_output=True, text=True))
print(subprocess.run(['sh','-c','cat; exit 3'], input='in', capture_output=True, text=True))",
    );
    let out = out.good();
    assert!(out.contains("thebox\\n1\\n") && out.contains(&world.place.workdir), "{out}");
    assert!(out.contains("returncode=3, stdout='in'"), "{out}");
}

fn missing_and_forbidden(world: &World) {
    std::fs::write(world.work("plain"), "x").expect("a file");
    let out = world.python(
        "for argv in (['no-such-program'],['/usr/bin/no-such-program'],['./nothing'],['./plain'],['.']):
    try: print(subprocess.run(argv))
    except OSError as e: print(e.errno)",
    );
    assert_eq!(out.good(), "2\n2\n2\n13\n13");
}
