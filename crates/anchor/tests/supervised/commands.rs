//! Commands land in the box and end as they ended there.

use crate::Test;
use crate::container::eventually;
use crate::world::{Session, World};

pub const TESTS: &[Test] = &[
    ("commands_land_in_the_box", commands_land_in_the_box),
    ("missing_and_forbidden", missing_and_forbidden),
    ("scripts_of_the_workdir", scripts_of_the_workdir),
    ("ways_to_spawn", ways_to_spawn),
    ("deaths_by_signal", deaths_by_signal),
    ("a_megabyte_of_arguments", a_megabyte_of_arguments),
    ("what_is_too_long_leaves_nothing_behind", what_is_too_long_leaves_nothing_behind),
    ("twenty_megabytes_byte_for_byte", twenty_megabytes_byte_for_byte),
    ("a_closed_pipe_ends_its_writer", a_closed_pipe_ends_its_writer),
    ("a_child_that_holds_stdout_does_not_hide_the_end", a_child_that_holds_stdout_does_not_hide_the_end),
    ("sigterm_is_forwarded", sigterm_is_forwarded),
    ("killing_the_stand_in_kills_the_command", killing_the_stand_in_kills_the_command),
    ("a_group_outlives_its_leader", a_group_outlives_its_leader),
    ("a_memfd_is_refused", a_memfd_is_refused),
    ("non_dumpable_parent", non_dumpable_parent),
    ("long_path", long_path),
    ("few_descriptors", few_descriptors),
    ("forty_at_once", forty_at_once),
    ("node_spawns", node_spawns),
    ("own_programs_stay", own_programs_stay),
    ("only_allowed_variables_cross", only_allowed_variables_cross),
    ("a_directory_the_box_lacks", a_directory_the_box_lacks),
    ("the_clis_own_streams", the_clis_own_streams),
    ("umask_and_masks_cross", umask_and_masks_cross),
    ("what_is_told_ahead_is_what_the_stand_in_tells", what_is_told_ahead_is_what_the_stand_in_tells),
    ("a_caller_that_dies_takes_a_command_along", a_caller_that_dies_takes_a_command_along),
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
    except OSError as e: print(e.errno)
print(subprocess.run(['/opt/no/such'], stderr=subprocess.PIPE, text=True))",
    );
    let out = out.good();
    assert!(out.starts_with("2\n2\n2\n13\n13\n"), "{out}");
    assert!(out.contains("returncode=127, stderr='hmz: /opt/no/such: No such file"), "{out}");
}

fn scripts_of_the_workdir(world: &World) {
    use std::os::unix::fs::PermissionsExt;
    for (name, text) in [
        ("script", "#!/bin/sh\nhostname; echo $1"),
        ("envy", "#!/usr/bin/env python3\nimport socket; print(socket.gethostname())"),
    ] {
        std::fs::write(world.work(name), text).expect("a file");
        std::fs::set_permissions(world.work(name), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    let out = world.python(
        "run=lambda *a,**k: print(subprocess.run(a,capture_output=True,text=True,**k).stdout.split(),flush=True)
run('./script','x')
run(os.getcwd()+'/script','y')
run('./envy')
os.mkdir('deep'); os.chdir('deep'); run('../script','z')
run('/usr/bin/env','bash','-c','hostname')
fd=os.open('../script',os.O_RDONLY)
if os.fork()==0: os.execve(fd,['script','fd'],os.environ)
os.wait()",
    );
    let host = "thebox";
    assert_eq!(out.good(), format!("['{host}', 'x']\n['{host}', 'y']\n['{host}']\n['{host}', 'z']\n['{host}']\n{host}\nfd"));
}

fn ways_to_spawn(world: &World) {
    let out = world.python(
        "print(os.system('test $(hostname) = thebox'))
print(os.popen('hostname').read().strip())
pid=os.posix_spawn('/bin/sh',['sh','-c','exit 5'],os.environ); print(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))
pid=os.posix_spawnp('sh',['sh','-c','exit 6'],os.environ,setsid=True); print(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))
pid=os.fork()
if pid==0: os.execvp('sh',['sh','-c','exit 7'])
print(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))
for close in (True,False): print(subprocess.run(['hostname'],close_fds=close,start_new_session=close,capture_output=True,text=True).stdout.strip())
done=[]
def work():
    for _ in range(10): done.append(subprocess.run(['sh','-c','exit 3']).returncode)
threads=[threading.Thread(target=work) for _ in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(done), set(done))
r,w=os.pipe(); os.set_inheritable(w,True)
subprocess.run(['sh','-c','echo extra >&%d'%w],pass_fds=[w]); os.close(w); print(os.read(r,99))",
    );
    assert_eq!(out.good(), "0\nthebox\n5\n6\n7\nthebox\nthebox\n60 {3}\nb'extra\\n'");
}

fn deaths_by_signal(world: &World) {
    let out = world.python(
        "for n in (9,11,15,6,1,40): print(subprocess.run(['sh','-c','kill -%d $$'%n]).returncode)
for n in (0,1,126,255): print(subprocess.run(['sh','-c','exit %d'%n]).returncode)",
    );
    assert_eq!(out.good(), "-9\n-11\n-15\n-6\n-1\n-40\n0\n1\n126\n255");
}

fn a_megabyte_of_arguments(world: &World) {
    let out = world.python(
        "args=['a'*100000]*10
env=dict(os.environ, FROM_CLI='v'*100000)
print(subprocess.run(['sh','-c','echo $# ${#FROM_CLI}; printf %s \"$*\" | wc -c','sh']+args,env=env,capture_output=True,text=True).stdout.split())
try: subprocess.run(['sh','-c','exit','a'*200000])
except OSError as e: print(e.errno)",
    );
    assert_eq!(out.good(), "['10', '100000', '1000009']\n7");
}

fn what_is_too_long_leaves_nothing_behind(world: &World) {
    // a caller whose exec failed goes on with the descriptors it had
    let out = world.python(
        "import ctypes,resource
resource.setrlimit(resource.RLIMIT_STACK,(8<<20,resource.getrlimit(resource.RLIMIT_STACK)[1]))
fds=lambda: sorted(os.listdir('/proc/self/fd'))
before=fds()
def fails(what,argv,env):
    try: os.execve('/bin/true',argv,env)
    except OSError as e: print(what,e.errno,fds()==before)
fails('an argument',['true','a'*(128<<10)],{})
fails('a variable',['true'],{'FROM_CLI':'v'*(128<<10)})
fails('arguments',['true']+['a'*1000]*2200,{})
fails('variables',['true'],{'V%d'%i:'v'*1000 for i in range(2200)})
fails('pointers',['true']+['']*(256<<10),{})
text=ctypes.c_char_p(b'a'*100000); same=(ctypes.c_char_p*32)(text,*[text]*30,None)
libc=ctypes.CDLL(None,use_errno=True)
print('one string',libc.execve(b'/bin/true',same,None),ctypes.get_errno(),fds()==before)
bad=(ctypes.c_void_p*2)(8,None)
for argv,env in ((ctypes.c_void_p(8),None),(bad,None),(None,bad)):
    print('nowhere',libc.execve(b'/bin/true',argv,env),ctypes.get_errno(),fds()==before)
# around the kernel's own limit, which is a quarter of the stack's: here it either begins or leaves nothing
ends=[]
for more in range(-48,49,4):
    words=['true']+['a'*99990]*20
    rest=(2<<20)-sum(len(w)+9 for w in words)-len('/dev/fd/9')-1-9
    pid=os.fork()
    if pid==0:
        try: os.execve('/bin/true',words+['b'*(rest+more)],{})
        except OSError as e: os._exit(7 if e.errno==7 and fds()==before else 8)
    ends.append(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))
first=ends.index(7)
# it is the box, with variables of its own, that finds the longest ones too long
print(set(ends[:first])<={0,126}, set(ends[first:]), 0<first<len(ends))",
    );
    let errors = "an argument 7 True\na variable 7 True\narguments 7 True\nvariables 7 True\npointers 7 True\n\
                  one string -1 7 True\nnowhere -1 14 True\nnowhere -1 14 True\nnowhere -1 14 True\nTrue {7} True";
    assert_eq!(out.good(), errors);
}

fn twenty_megabytes_byte_for_byte(world: &World) {
    let out = world.python(
        "import hashlib
data=os.urandom(20<<20)
p=subprocess.run(['cat'],input=data,capture_output=True)
print(p.returncode,p.stderr,len(p.stdout),p.stdout==data)
open('big','wb').write(data)
p=subprocess.run(['sha256sum'],stdin=open('big','rb'),capture_output=True,text=True)
print(p.returncode,p.stderr,p.stdout.split()[:1]==[hashlib.sha256(data).hexdigest()])
with open('out','wb') as f: p=subprocess.run(['cat','big'],stdout=f)
print(p.returncode,open('out','rb').read()==data)",
    );
    assert_eq!(out.good(), "0 b'' 20971520 True\n0  True\n0 True");
}

fn a_closed_pipe_ends_its_writer(world: &World) {
    let out = world.python(
        "yes=subprocess.Popen(['yes'],stdout=subprocess.PIPE)
head=subprocess.Popen(['head','-1'],stdin=yes.stdout,stdout=subprocess.PIPE,text=True)
yes.stdout.close()
print(head.communicate()[0].strip(), head.returncode, yes.wait())
print(subprocess.run('yes | head -1',shell=True,capture_output=True,text=True).stdout)",
    );
    assert_eq!(out.good(), "y 0 -13\ny");
}

fn a_child_that_holds_stdout_does_not_hide_the_end(world: &World) {
    let out = world.python(
        "p=subprocess.Popen(['sh','-c','sleep 100 & echo on; exit 4'],stdout=subprocess.PIPE,start_new_session=True)
print(p.wait(), p.stdout.readline())
os.killpg(p.pid,signal.SIGKILL)
print(p.stdout.read())",
    );
    assert_eq!(out.good(), "4 b'on\\n'\nb''");
    // one that holds nothing does not keep the streams open either
    let out = world.python(
        "p=subprocess.Popen(['sh','-c','sleep 100 >/dev/null 2>&1 & echo on'],stdout=subprocess.PIPE,stderr=subprocess.PIPE)
print(p.communicate())",
    );
    assert_eq!(out.good(), "(b'on\\n', b'')");
}

fn sigterm_is_forwarded(world: &World) {
    let out = world.python(
        "p=subprocess.Popen(['bash','-c','trap \"exit 7\" TERM; echo on; while :; do sleep 0.05; done'],stdout=subprocess.PIPE)
p.stdout.readline(); p.terminate(); print(p.wait())
p=subprocess.Popen(['bash','-c','trap \"exit 8\" TERM; echo on; while :; do sleep 0.05; done'],stdout=subprocess.PIPE,start_new_session=True)
p.stdout.readline(); os.killpg(p.pid,15); print(p.wait())
p=subprocess.Popen(['sh','-c','echo on; exec sleep 100'],stdout=subprocess.PIPE)
p.stdout.readline(); p.send_signal(signal.SIGINT); print(p.wait())",
    );
    assert_eq!(out.good(), "7\n8\n-2");
}

fn killing_the_stand_in_kills_the_command(world: &World) {
    let out = world.python(
        "p=subprocess.Popen(['sh','-c','sleep 4242 & sleep 4243 & echo on; wait'],stdout=subprocess.PIPE)
p.stdout.readline(); p.kill(); print(p.wait()); print(p.stdout.read())
print(subprocess.run('grep -l sleep /proc/[0-9]*/comm',shell=True,capture_output=True,text=True).stdout)",
    );
    // the end of its output is the end of its background children
    assert_eq!(out.good(), "-9\nb''");
    eventually("no process in the box", || world.in_box().is_empty());
}

fn a_group_outlives_its_leader(world: &World) {
    let out = world.python(
        "p=subprocess.Popen(['sh','-c','sleep 5252 >/dev/null 2>&1 & sleep 5253 >/dev/null 2>&1 & exit 0'],start_new_session=True)
print(p.wait())
os.killpg(p.pid,0)
count=lambda: subprocess.run('cat /proc/[0-9]*/cmdline | tr \"\\\\0\" \" \" | grep -c \"sleep 525[2]\"',shell=True,capture_output=True,text=True).stdout.strip()
print(count())
os.killpg(p.pid,signal.SIGTERM)
end=time.time()+110
while time.time()<end:
    try: os.killpg(p.pid,0)
    except ProcessLookupError: break
    time.sleep(0.01)
print(count())",
    );
    assert_eq!(out.good(), "0\n1\n0");
}

fn a_memfd_is_refused(world: &World) {
    let out = world.python(
        "fd=os.memfd_create('x'); os.write(fd,open('/bin/true','rb').read())
pid=os.fork()
if pid==0:
    try: os.execve(fd,['x'],{})
    except OSError as e: os._exit(e.errno)
print(os.waitstatus_to_exitcode(os.waitpid(pid,0)[1]))
import ctypes
libc=ctypes.CDLL(None,use_errno=True)
print(libc.syscall(59,0,0,0), ctypes.get_errno())
print(libc.syscall(425,1,0), ctypes.get_errno())",
    );
    assert_eq!(out.good(), "13\n-1 13\n-1 38");
}

fn non_dumpable_parent(world: &World) {
    let out = world.python(
        "import ctypes
print(ctypes.CDLL(None).prctl(4,0,0,0,0))
print(subprocess.run(['hostname'],capture_output=True,text=True).stdout.strip())",
    );
    assert_eq!(out.good(), "0\nthebox");
}

fn long_path(world: &World) {
    let out = world.python(
        "os.environ['PATH']=':'.join('/opt/d%d'%i for i in range(300))+':'+os.environ['PATH']
print(subprocess.run(['hostname'],capture_output=True,text=True).stdout.strip())
try: subprocess.run(['no-such-program'])
except OSError as e: print(e.errno)",
    );
    assert_eq!(out.good(), "thebox\n2");
}

fn few_descriptors(world: &World) {
    let out = world.python(
        "import resource
resource.setrlimit(resource.RLIMIT_NOFILE,(16,16))
print(subprocess.run(['hostname'],capture_output=True,text=True).stdout.strip())",
    );
    assert_eq!(out.good(), "thebox");
}

fn forty_at_once(world: &World) {
    let out = world.python(
        "ps=[subprocess.Popen(['sh','-c','read x; echo $x; exit %d'%i],stdin=subprocess.PIPE,stdout=subprocess.PIPE,text=True) for i in range(40)]
print(all(p.communicate('n%d\\n'%i)[0]=='n%d\\n'%i and p.returncode==i for i,p in enumerate(ps)))",
    );
    assert_eq!(out.good(), "True");
}

fn node_spawns(world: &World) {
    let script = "const c=require('child_process');
console.log(c.execSync('hostname').toString().trim());
console.log(c.spawnSync('sh',['-c','cat | wc -c'],{input:Buffer.alloc(300000)}).stdout.toString().trim());
console.log(c.spawnSync('no-such-program').error.code);
if(process.argv[1]!=='child'){
 const p=c.spawn('bash',['-c','sleep 100 & sleep 100'],{detached:true});
 p.on('exit',(code,sig)=>{console.log(code,sig);
  require('fs').writeFileSync('child.js','process.send({host:require(\"os\").hostname()===\"thebox\"})');
  const f=c.fork('child.js');
  f.on('message',m=>console.log(JSON.stringify(m)));
  f.on('exit',()=>Promise.all([...Array(40).keys()].map(i=>new Promise(r=>c.exec('exit '+i,e=>r((e?e.code:0)===i))))).then(a=>console.log(a.every(x=>x))));
 });
 p.on('spawn',()=>process.kill(-p.pid,'SIGTERM'));
}";
    let config = world.config("/usr/bin/node", &["-e", script]);
    let out = Session::start(&config).end(b"").good();
    assert_eq!(out, "thebox\n300000\nENOENT\nnull SIGTERM\n{\"host\":false}\ntrue");
}

fn own_programs_stay(world: &World) {
    let mut config = world.config(
        "/usr/bin/python3",
        &[
            "-c",
            "import subprocess,sys,os,shutil
run=lambda a,**k: print(subprocess.run(a,capture_output=True,text=True,**k).stdout.strip())
code='import socket;print(socket.gethostname()==\"thebox\")'
run([sys.executable,'-c',code]); run(['rg','-c',code],executable='/proc/self/exe')
os.symlink(sys.executable,os.environ['CLI']+'/link'); run([os.environ['CLI']+'/link','-c',code])
os.symlink(sys.executable,'link'); run(['./link','-c',code])
shutil.copy(sys.executable,'copy')
print(subprocess.run(['./copy','-c',code],capture_output=True,text=True).returncode)
run(['hostname'])
run(['sh','-c','python3 -c \"import socket;print(socket.gethostname())\"'])
run(['ps','-o','pid=','-p',str(os.getpid())])
open('ps','w').write('#!/bin/sh\\nhostname\\n'); os.chmod('ps',0o755); run(['./ps'])
print(os.getpid())",
        ],
    );
    config.policy.own.push("/usr/bin/python3".into());
    config.fence.write.push(world.path("cli"));
    config.env.insert("CLI".into(), world.path("cli").to_str().expect("text").into());
    let out = Session::start(&config).end(b"").good();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(&lines[..3], ["False"; 3], "{out}");
    // the box could put another file in a link's place, and a copy is another file
    assert_eq!(lines[3], "True", "{out}");
    assert_ne!(lines[4], "0", "{out}");
    assert_eq!(&lines[5..7], ["thebox"; 2], "{out}");
    assert_eq!(lines[7], lines[9], "ps shows this machine's processes: {out}");
    assert_eq!(lines[8], "thebox", "a ps of the agent's making is no listing: {out}");
}

fn only_allowed_variables_cross(world: &World) {
    let out = world.python(
        "env=dict(os.environ,FROM_CLI='1',LC_TIME='C',OTHER='no',PATH='/usr/bin:/bin',HOME='/root')
print(subprocess.run(['env'],env=env,capture_output=True,text=True).stdout)",
    );
    let out = out.good();
    let has = |line: &str| out.lines().any(|l| l == line);
    assert!(has("FROM_CLI=1") && has("LC_TIME=C") && has("TERM=dumb") && has("BOX_OWN=1"), "{out}");
    assert!(!out.contains("CANARY") && !out.contains("secret") && !out.contains("OTHER"), "{out}");
    assert!(!has("PATH=/usr/bin:/bin") && !has("HOME=/nonexistent"), "{out}");
}

fn a_directory_the_box_lacks(world: &World) {
    std::fs::create_dir_all(world.path("cli/here")).expect("a directory");
    let script = format!(
        "r=subprocess.run(['hostname'],cwd='{}',capture_output=True,text=True); print(r.returncode, r.stderr)",
        world.path("cli/here").display()
    );
    let out = world.python(&script).good();
    assert!(out.starts_with("126 hmz: the box has no directory /"), "{out}");
}

fn the_clis_own_streams(world: &World) {
    let script = "import subprocess,sys
sys.stdout.write('first\\n'); sys.stdout.flush()
r=subprocess.run(['sh','-c','cat; hostname; echo err >&2'])
print('last', r.returncode)";
    let ended = Session::start(&world.config("/usr/bin/python3", &["-c", script])).end(b"from outside\n");
    assert_eq!(ended.err, "err\n");
    assert_eq!(ended.good(), "first\nfrom outside\nthebox\nlast 0");
}

fn umask_and_masks_cross(world: &World) {
    let out = world.python(
        "os.umask(0o027)
signal.signal(signal.SIGUSR1,signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK,[signal.SIGUSR2])
print(subprocess.run(['grep','-E','Sig(Blk|Ign)|Umask','/proc/self/status'],capture_output=True,text=True).stdout.split())",
    );
    let out = out.good();
    assert!(out.contains("'0027'") && out.contains("0000000000000800"), "{out}");
    let ignored = out.split("SigIgn:', '").nth(1).expect("a field");
    let ignored = u64::from_str_radix(&ignored[..16], 16).expect("hex");
    assert_eq!(ignored & (1 << 9), 1 << 9, "{out}");
}

/// The supervisor tells the plain case itself; of a caller with many descriptors, with threads or with a session the stand-in
/// tells. All see the same.
fn what_is_told_ahead_is_what_the_stand_in_tells(world: &World) {
    let out = world.python(
        r#"os.umask(0o031)
signal.signal(signal.SIGUSR1,signal.SIG_IGN); signal.signal(40,signal.SIG_IGN)
signal.signal(signal.SIGUSR2,lambda *a: None)
os.makedirs('told',exist_ok=True); os.chdir('told')
kept=os.open('kept',os.O_RDWR|os.O_CREAT,0o600); os.dup2(kept,17); os.dup2(kept,9)
look="""grep -E '^(Umask|SigBlk|SigIgn)' /proc/self/status; ls /proc/self/fd; pwd; echo "$0" "$@" "$LC_TOLD"; readlink /proc/self/fd/9"""
os.environ['LC_TOLD']='x'*300+' end'
def spawn(**more):
    r,w=os.pipe()
    pid=os.fork()
    if pid==0:
        more.get('first',lambda: None)()
        signal.pthread_sigmask(signal.SIG_BLOCK,{signal.SIGHUP,signal.SIGUSR1,50})
        os.dup2(w,1)
        os.execv('/bin/sh',['sh','-c',look,'zero','','a b','y'*5000])
    os.close(w)
    said=open(r).read()
    assert os.waitstatus_to_exitcode(os.waitpid(pid,0)[1])==0, said
    return said
def many(): [os.open('/dev/null',os.O_RDONLY) for _ in range(30)]
def threads():
    import time
    threading.Thread(target=time.sleep,args=(1000,),daemon=True).start()
plain=spawn()
print(plain[:200])
for first in (many,threads,os.setsid):
    other=spawn(first=first)
    print(first.__name__, 'same' if other==plain else other)"#,
    );
    let out = out.good();
    assert!(out.contains("Umask:\t0031") && out.contains("17"), "{out}");
    assert!(out.ends_with("many same\nthreads same\nsetsid same"), "{out}");
}

/// One that is killed at any moment of its exec leaves nothing of its command.
fn a_caller_that_dies_takes_a_command_along(world: &World) {
    let out = world.python(
        "import random, time
for i in range(300):
    pid=os.fork()
    if pid==0: os.execv('/bin/sleep',['sleep','7654'])
    time.sleep(random.random()/200); os.kill(pid,9); os.waitpid(pid,0)
for _ in range(600):
    left=subprocess.run(['sh','-c',\"grep -lzxE '765[4]' /proc/[0-9]*/cmdline 2>/dev/null\"],capture_output=True,text=True).stdout
    if not left: break
    time.sleep(.1)
print('left', left)",
    );
    assert_eq!(out.good().trim_end(), "left");
}
