//! Job control without a terminal: a command is stopped and goes on as it would here.
//!
//! Each script says the same when its commands run here, so it is run so too.

use crate::Test;
use crate::world::World;
use std::process::Command;

pub const TESTS: &[Test] = &[
    ("a_stopped_command_stops_in_the_box_and_goes_on", a_stopped_command_stops_in_the_box_and_goes_on),
    ("a_stopped_group_goes_on", a_stopped_group_goes_on),
    ("an_orphans_command_is_not_stopped", an_orphans_command_is_not_stopped),
    ("a_stop_that_is_taken_back_stops_nothing", a_stop_that_is_taken_back_stops_nothing),
    ("a_stopped_command_can_be_killed", a_stopped_command_can_be_killed),
];

/// What the scripts use. A job is a group of its own, whose leader's parent is not in it: no orphan's.
const COMMON: &str = "
def job(*argv,**k): return subprocess.Popen(argv,stdin=subprocess.PIPE,stdout=subprocess.PIPE,text=True,bufsize=1,**k)
def state(pid): return subprocess.run(['cut','-d',' ','-f3','/proc/%s/stat'%pid],capture_output=True,text=True).stdout.strip()
def until(pid,wanted):
    end=time.time()+60
    while state(pid)!=wanted: assert time.time()<end, (pid,state(pid))
    return True
def stopped(p):
    _,status=os.waitpid(p.pid,os.WUNTRACED); return os.WIFSTOPPED(status) and os.WSTOPSIG(status)
def resumed(p):
    _,status=os.waitpid(p.pid,os.WCONTINUED); return os.WIFCONTINUED(status)
def answers(p):
    p.stdin.write('x\\n'); return p.stdout.readline().strip()
ECHO='while read x; do echo got $x; done'
";

/// Runs it here, and under a supervisor with its commands in the box.
#[track_caller]
fn both(world: &World, script: &str, wanted: &str) {
    let script = format!("{COMMON}{script}");
    let full = format!("import os,sys,subprocess,signal,time\n{script}");
    let here = Command::new("/usr/bin/python3").args(["-c", &full]).output().expect("python");
    assert_eq!(String::from_utf8_lossy(&here.stdout).trim_end(), wanted, "here: {}", String::from_utf8_lossy(&here.stderr));
    assert_eq!(world.python(&script).good(), wanted);
}

fn a_stopped_command_stops_in_the_box_and_goes_on(world: &World) {
    let script = "
for n in (signal.SIGTSTP,signal.SIGTTIN,signal.SIGTTOU):
    p=job('sh','-c','echo $$; '+ECHO,process_group=0); pid=p.stdout.readline().strip()
    print(answers(p))
    os.kill(p.pid,n); print(stopped(p)==n, until(pid,'T'))
    p.stdin.write('later\\n')
    os.kill(p.pid,signal.SIGCONT); print(resumed(p), p.stdout.readline().strip(), answers(p))
    # and once more, since a stop leaves nothing behind
    os.kill(p.pid,n); print(stopped(p)==n, until(pid,'T'))
    os.kill(p.pid,signal.SIGCONT); print(resumed(p), answers(p))
    p.stdin.close(); print(p.wait())";
    let one = "got x\nTrue True\nTrue got later got x\nTrue True\nTrue got x\n0\n";
    both(world, script, one.repeat(3).trim_end());
}

fn a_stopped_group_goes_on(world: &World) {
    let script = "
p=job('sh','-c','sleep 1000 & echo $$ $!; (trap \"\" TSTP; echo $(exec sh -c \"echo \\$PPID\"); exec sleep 1000) & read x',process_group=0)
leader,child=p.stdout.readline().split(); deaf=p.stdout.readline().strip()
os.killpg(p.pid,signal.SIGTSTP)
print(stopped(p), until(leader,'T'), until(child,'T'), until(deaf,'S'))
os.killpg(p.pid,signal.SIGCONT)
print(resumed(p), until(leader,'S'), until(child,'S'), until(deaf,'S'))
os.killpg(p.pid,signal.SIGTERM); print(p.wait())";
    both(world, script, "20 True True True\nTrue True True True\n-15");
}

fn an_orphans_command_is_not_stopped(world: &World) {
    // nobody is there who could have it go on
    let script = "
p=job('sh','-c',ECHO,start_new_session=True)
print(answers(p))
for n in (signal.SIGTSTP,signal.SIGTTIN,signal.SIGTTOU):
    os.kill(p.pid,n); print(answers(p), os.waitpid(p.pid,os.WUNTRACED|os.WNOHANG))
p.stdin.close(); print(p.wait())";
    both(world, script, "got x\ngot x (0, 0)\ngot x (0, 0)\ngot x (0, 0)\n0");
}

fn a_stop_that_is_taken_back_stops_nothing(world: &World) {
    let script = "
p=job('sh','-c',ECHO,process_group=0)
for _ in range(300): os.kill(p.pid,signal.SIGTSTP); os.kill(p.pid,signal.SIGCONT)
print(answers(p))
p.stdin.close(); print(p.wait())";
    both(world, script, "got x\n0");
}

fn a_stopped_command_can_be_killed(world: &World) {
    let script = "
p=job('sh','-c','echo $$; '+ECHO,process_group=0); pid=p.stdout.readline().strip()
os.kill(p.pid,signal.SIGTSTP); print(stopped(p), until(pid,'T'))
os.kill(p.pid,signal.SIGKILL); print(p.wait(), until(pid,''))
p=job('sh','-c','echo $$; '+ECHO,process_group=0); pid=p.stdout.readline().strip()
os.kill(p.pid,signal.SIGTSTP); print(stopped(p), until(pid,'T'))
os.kill(p.pid,signal.SIGTERM); os.kill(p.pid,signal.SIGCONT); print(p.wait(), until(pid,''))";
    both(world, script, "20 True\n-9 True\n20 True\n-15 True");
}
