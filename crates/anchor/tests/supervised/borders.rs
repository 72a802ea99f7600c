//! What may not cross does not: descriptors, files, privileges.

use crate::Test;
use crate::world::{Session, TERMINAL, World};

pub const TESTS: &[Test] = &[
    ("a_file_here_cannot_be_written_from_the_box", a_file_here_cannot_be_written_from_the_box),
    ("a_directory_descriptor_does_not_cross", a_directory_descriptor_does_not_cross),
    ("files_outside_are_copied", files_outside_are_copied),
    ("devices_and_named_sockets_stay", devices_and_named_sockets_stay),
    ("the_clis_own_input_cannot_be_written", the_clis_own_input_cannot_be_written),
    ("sockets_of_the_tree_pass", sockets_of_the_tree_pass),
    ("terminals_of_the_tree_pass", terminals_of_the_tree_pass),
    ("the_cli_is_fenced", the_cli_is_fenced),
    ("the_box_is_fenced", the_box_is_fenced),
    ("a_setuid_program_gains_nothing", a_setuid_program_gains_nothing),
    ("a_plain_user_needs_nothing", a_plain_user_needs_nothing),
    ("a_second_listener_is_refused", a_second_listener_is_refused),
    ("the_scratch_directory_is_made", the_scratch_directory_is_made),
    ("planted_links_open_nothing", planted_links_open_nothing),
];

fn secret(world: &World) -> String {
    let path = world.path("cli/secret");
    std::fs::write(&path, "kept\n").expect("a file");
    path.to_str().expect("text").to_owned()
}

fn a_file_here_cannot_be_written_from_the_box(world: &World) {
    let path = secret(world);
    // the fence in the box would forbid it too; so it is asked what crossed as well
    let out = world.python(&format!(
        "r=subprocess.run(['sh','-c','cat; readlink /proc/self/fd/0 | cut -c1-5; echo changed >>/proc/self/fd/0'],stdin=open('{path}'),capture_output=True,text=True)
print(r.stdout)
f=open('{path}')
r=subprocess.run(['sh','-c','test -e /proc/self/fd/%d || echo absent; echo changed >>/proc/self/fd/%d'%(f.fileno(),f.fileno())],pass_fds=[f.fileno()],capture_output=True,text=True)
print(r.stdout)"
    ));
    assert_eq!(out.good(), "kept\npipe:\n\nabsent");
    assert_eq!(std::fs::read_to_string(&path).expect("a file"), "kept\n");
}

fn a_directory_descriptor_does_not_cross(world: &World) {
    secret(world);
    let dir = world.path("cli");
    let out = world.python(&format!(
        "for flags in (os.O_RDONLY,os.O_PATH):
    fd=os.open('{0}',flags)
    for how in (dict(pass_fds=[fd]),dict(stdin=fd)):
        r=subprocess.run(['sh','-c','cat /proc/self/fd/%d/secret; ls /proc/self/fd/0/'%fd],capture_output=True,text=True,**how)
        print(r.returncode!=0, r.stdout)
r=subprocess.run(['sh','-c','ls /proc/self/fd/0/; ls /proc/self/fd/'],stdin=os.open('.',os.O_RDONLY),capture_output=True,text=True)
print(r.stdout.split())",
        dir.display()
    ));
    assert_eq!(out.good(), "True \nTrue \nTrue \nTrue \n['0', '1', '2', '3']");
}

fn files_outside_are_copied(world: &World) {
    let log = world.path("cli2");
    std::fs::create_dir_all(&log).expect("a directory");
    let script = format!(
        "import os,subprocess
f=open('{0}/log','w+')
r=subprocess.run(['sh','-c','echo one; echo two >&2; (sleep 100; echo late) & echo three'],stdout=f,stderr=f)
print(open('{0}/log').read().split())
gone=open('gone','w+'); os.unlink('gone')
subprocess.run(['sh','-c','echo x'],stdout=gone)
gone.seek(0); print(gone.read())
open('in','w').write('text'); i=open('in'); os.unlink('in')
print(subprocess.run(['cat'],stdin=i,capture_output=True,text=True).stdout)
r=subprocess.run(['sh','-c','yes & echo end'],stdout=open('{0}/flood','w')); print(r.returncode)
i=open('{0}/log'); r=subprocess.run(['head','-c','3'],stdin=i,capture_output=True,text=True); print(r.stdout)",
        log.display()
    );
    let mut config = world.config("/usr/bin/python3", &["-c", &script]);
    config.fence.write.push(log);
    // what was written before the end is there at the end, in its order
    assert_eq!(Session::start(&config).end(b"").good(), "['one', 'two', 'three']\nx\n\ntext\n0\none");
}

fn devices_and_named_sockets_stay(world: &World) {
    let out = world.python(
        "print(subprocess.run('head -c 10 | wc -c',shell=True,stdin=open('/dev/zero'),capture_output=True,text=True).stdout.strip())
l=socket.socket(socket.AF_UNIX); l.bind('named'); l.listen()
c=socket.socket(socket.AF_UNIX); c.connect('named'); a,_=l.accept()
t=socket.socket(); m=os.memfd_create('m'); e=__import__('select').epoll()
for s in (l,c,a,t,m,e):
    n=s if isinstance(s,int) else s.fileno()
    r=subprocess.run(['sh','-c','test -e /proc/self/fd/%d'%n],pass_fds=[n]); print(r.returncode)
for s in (c,a,t):
    print(subprocess.run(['sh','-c','readlink /proc/self/fd/0'],stdin=s,capture_output=True,text=True).stdout.strip())",
    );
    assert_eq!(out.good(), "0\n1\n1\n1\n1\n1\n1\n/dev/null\n/dev/null\n/dev/null");
}

fn the_clis_own_input_cannot_be_written(world: &World) {
    // whoever could write it would speak for the user
    let script = "import subprocess,sys
r=subprocess.run(['sh','-c','echo injected >/proc/self/fd/0'])
print(sys.stdin.read())";
    let out = Session::start(&world.config("/usr/bin/python3", &["-c", script])).end(b"").good();
    assert!(!out.contains("injected"), "{out}");
}

fn sockets_of_the_tree_pass(world: &World) {
    let out = world.python(
        "a,b=socket.socketpair()
p=subprocess.Popen(['sh','-c','read x; echo got $x; readlink /proc/self/fd/0 | cut -c1-6'],stdin=b,stdout=b); b.close()
a.sendall(b'word\\n'); p.wait(); print(a.makefile().read())",
    );
    assert_eq!(out.good(), "got word\nsocket");
}

fn terminals_of_the_tree_pass(world: &World) {
    let out = world.python(
        &[
            TERMINAL,
            r#"
pid,fd=pty.fork()
if pid==0:
    size(0,30,90)
    os.execvp('bash',['bash','--norc','--noprofile','-i'])
until(b'# ')
run(b"PS1='rea''dy> '")
got=run(b"test -t 0 && test -t 1 && echo is'a'tty; hostname; stty size; echo into >/dev/tty; tty")
print(b'isatty' in got, b'thebox' in got, b'30 90' in got, b'into' in got)
size(fd,31,91)
end=time.time()+60
while b'31 91' not in run(b'stty size'): assert time.time()<end
print(True)
os.write(fd,job); until(b'start'); os.write(fd,b'\x03'); until(b'ready> ')
print(b'rc=130' in run(b'echo rc=$?'))
os.write(fd,job); until(b'start'); os.write(fd,b'\x1a'); until(b'ready> ')
print(b'Stopped' in run(b'jobs'))
# a shell with a stopped job wants to be told twice
os.write(fd,b'exit 8\n'); until(b'ready> ')
os.write(fd,b'exit 9\n'); print(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))"#,
        ]
        .concat(),
    );
    assert_eq!(out.good(), "True True True True\nTrue\nTrue\nTrue\n9");
}

fn the_cli_is_fenced(world: &World) {
    let home = world.path("home");
    std::fs::write(home.join("key"), "key").expect("a file");
    let _ = std::os::unix::fs::symlink(&home, world.work("outlink"));
    let outside = std::process::id();
    let out = world.python(&format!(
        "def t(f):
    try: f(); print('done')
    except OSError as e: print(e.errno)
t(lambda: open('{0}/new','w'))
t(lambda: open('{0}/key'))
t(lambda: open('outlink/new','w'))
t(lambda: open('outlink/key'))
t(lambda: os.link('{0}/key','stolen'))
t(lambda: open('/tmp/hmz-outside','w'))
t(lambda: open('/proc/{outside}/environ').read())
t(lambda: os.kill({outside},0))
t(lambda: open('inside','w'))
t(lambda: open(os.environ['TMPDIR']+'/x','w'))
t(lambda: open('/dev/null','w'))",
        home.display()
    ));
    assert_eq!(out.good(), "13\n13\n13\n13\n18\n13\n13\n1\ndone\ndone\ndone");
    assert!(!home.join("new").exists());
}

fn the_box_is_fenced(world: &World) {
    let out = world.python(
        "for f in ('/etc/x','/root/x','/usr/local/bin/x','/tmp/x','/var/tmp/x','here',os.environ['TMPDIR']+'/y','/dev/null'):
    print(subprocess.run(['sh','-c','echo x >'+f],stderr=subprocess.DEVNULL).returncode)",
    );
    assert_eq!(out.good(), "2\n2\n2\n0\n0\n0\n0\n0");
}

fn a_setuid_program_gains_nothing(world: &World) {
    let out = world.python(
        "print(subprocess.run('cp $(command -v id) /tmp/sid; chmod 4755 /tmp/sid; '
 'python3 -c \"import os; os.setuid(1234); os.execv(\\'/tmp/sid\\',[\\'id\\',\\'-u\\'])\"',shell=True,capture_output=True,text=True))",
    );
    let out = out.good();
    assert!(out.contains("stdout='1234\\n'"), "{out}");
}

fn the_scratch_directory_is_made(world: &World) {
    use std::os::unix::fs::MetadataExt;
    let mut config = world.config("/usr/bin/python3", &["-c", "print(1)"]);
    let wanted = format!("{}/session/deep", world.place.scratch);
    config.env.insert("TMPDIR".into(), wanted.clone());
    assert_eq!(Session::start(&config).end(b"").good(), "1");
    assert_eq!(std::fs::metadata(&wanted).expect("a directory").mode() & 0o777, 0o700);
    // a link that was planted there is not followed
    let planted = format!("{}/planted", world.place.scratch);
    std::os::unix::fs::symlink(world.path("home"), &planted).expect("a link");
    config.env.insert("TMPDIR".into(), format!("{planted}/x"));
    let ended = Session::start(&config).end(b"");
    assert!(!ended.status.success() && ended.out.is_empty(), "{ended:?}");
    assert!(!world.path("home/x").exists());
}

fn planted_links_open_nothing(world: &World) {
    // what the box can write it can put a link at, before the fence is made: at any name the fence gives
    let home = world.path("home");
    std::fs::write(home.join("key"), "key").expect("a file");
    let script = format!(
        "def t(f):
    try: print(f())
    except OSError as e: print(e.errno)
t(lambda: open('{0}/new','w').close())
t(lambda: open('{0}/key').read())
t(lambda: open('here','w').close())
t(lambda: open('{1}/there','w').close())",
        home.display(),
        world.place.scratch
    );
    for dir in [&world.place.scratch, &world.place.workdir] {
        let mut config = world.config("/usr/bin/python3", &["-c", &script]);
        // without TMPDIR nothing looks at the session's own directory before
        config.env.remove("TMPDIR");
        let planted = std::path::Path::new(dir).join("planted-home");
        std::os::unix::fs::symlink(&home, &planted).expect("a link");
        config.fence.write.push(planted.clone());
        config.fence.read.push(planted.join("key"));
        assert_eq!(Session::start(&config).end(b"").good(), "13\n13\nNone\nNone", "{}", planted.display());
        assert!(!home.join("new").exists());
    }
}

fn a_plain_user_needs_nothing(_: &World) {
    let world = World::new(2345);
    let out = world.python(
        "import ctypes
print(os.getuid(), ctypes.CDLL(None).prctl(4,0,0,0,0))
print(subprocess.run('hostname; id -u; echo x >made',shell=True,capture_output=True,text=True).stdout.split(), os.stat('made').st_uid)
print(set(p.wait() for p in [subprocess.Popen(['sh','-c','exit 3']) for _ in range(20)]))
try: open('/var/tmp/x','w')
except OSError as e: print(e.errno)",
    );
    assert_eq!(out.good(), "2345 0\n['thebox', '2345'] 2345\n{3}\n13");
}

fn a_second_listener_is_refused(world: &World) {
    // a supervisor as the CLI: what has a listener cannot be given another, and says so before anything runs
    let inner = world.config("/usr/bin/python3", &["-c", "open('inner','w')"]);
    let frame = world.work("frame");
    std::fs::write(&frame, inner.frame().expect("a frame")).expect("a file");
    let exe = world.exe.to_str().expect("text");
    let script = "import subprocess,os,sys
r,w=os.pipe(); os.dup2(r,3); os.set_inheritable(3,True)
print(subprocess.run([sys.argv[1],'supervisor'],stdin=open('frame'),pass_fds=[3],capture_output=True,text=True))";
    let mut config = world.config("/usr/bin/python3", &["-c", script, exe]);
    config.policy.own.push(exe.into());
    let out = Session::start(&config).end(b"").good();
    assert!(out.contains("returncode=2") && out.contains("no seccomp listener"), "{out}");
    assert!(!world.work("inner").exists());
}
