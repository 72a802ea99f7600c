//! A message of the supervisor's made into a command the kernel takes: checked, completed with the box's variables, and
//! started.

use crate::programs::Programs;
use crate::sys;
use hmz_wire::Spawn;
use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

/// The box's own variables, in the order it has them.
#[derive(Debug, Clone)]
pub(crate) struct Environ(pub Vec<(Vec<u8>, Vec<u8>)>);

/// Words put before every command: a program of the box's that runs the command after them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wrapper(pub Vec<Vec<u8>>);

impl Environ {
    /// Those of this process, and the wrapper among them, which no command sees.
    pub(crate) fn own() -> (Self, Wrapper) {
        let all = std::env::vars_os().map(|(name, value)| (name.into_vec(), value.into_vec()));
        let (words, own): (Vec<_>, Vec<_>) = all.partition(|(name, _)| name == hmz_wire::WRAPPER.as_bytes());
        let words = words.into_iter().next().map(|(_, words)| words).unwrap_or_default();
        let words = words.split(|&b| b == b'\n').filter(|w| !w.is_empty()).map(<[u8]>::to_vec).collect();
        (Self(own), Wrapper(words))
    }

    /// One of them.
    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_slice())
    }

    /// `NAME=value` of all, with `over` on top.
    fn with(&self, over: &[(hmz_wire::Bytes, hmz_wire::Bytes)]) -> Result<Vec<CString>, i32> {
        let mut last = std::collections::HashMap::with_capacity(over.len());
        for (index, (name, _)) in over.iter().enumerate() {
            if name.is_empty() || name.contains(&b'=') {
                return Err(libc::EINVAL);
            }
            last.insert(name.as_slice(), index);
        }
        let kept =
            self.0.iter().filter(|(name, _)| !last.contains_key(name.as_slice())).map(|(n, v)| (n.as_slice(), v.as_slice()));
        let set = over.iter().enumerate().filter(|(index, (name, _))| last.get(name.as_slice()) == Some(index));
        kept.chain(set.map(|(_, (n, v))| (n.as_slice(), v.as_slice())))
            .map(|(name, value)| text(&[name, b"=", value].concat()))
            .collect()
    }
}

/// A string for the kernel; one that holds a zero byte is none.
fn text(bytes: &[u8]) -> Result<CString, i32> {
    CString::new(bytes).map_err(|_| libc::EINVAL)
}

/// Starts it; its pid, which is its group's and its session's too.
///
/// # Errors
/// The errno of what was wrong with it or of the step that failed.
pub(crate) fn start(spawn: &Spawn, fds: &[OwnedFd], own: &Environ, wrapper: &Wrapper, programs: &Programs) -> Result<i32, i32> {
    if fds.len() != spawn.fds.len() {
        // the kernel dropped what did not fit this process's table
        return Err(if fds.len() < spawn.fds.len() { libc::EMFILE } else { libc::EINVAL });
    }
    let numbers: HashSet<i32> = spawn.fds.iter().copied().collect();
    if numbers.len() != spawn.fds.len()
        || spawn.fds.iter().any(|&n| n < 0)
        || spawn.ctty.is_some_and(|tty| !numbers.contains(&tty))
    {
        return Err(libc::EBADF);
    }
    if spawn.argv.is_empty() {
        return Err(libc::EINVAL);
    }
    let (mut paths, mut fallback) = paths(spawn, programs)?;
    let mut argv = spawn.argv.iter().map(|a| text(a)).collect::<Result<Vec<_>, _>>()?;
    if !wrapper.0.is_empty() {
        (paths, argv) = wrapped(wrapper, &paths, fallback, argv, spawn, programs)?;
        fallback = false;
    }
    let env = own.with(&spawn.env)?;
    let cwd = text(&spawn.cwd)?;
    let placed: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).zip(spawn.fds.iter().copied()).collect();
    sys::spawn(&sys::Exec {
        paths: &paths,
        fallback,
        argv: &argv,
        env: &env,
        cwd: &cwd,
        umask: spawn.umask,
        blocked: spawn.blocked,
        ignored: spawn.ignored,
        fds: &placed,
        ctty: spawn.ctty,
    })
}

/// Whether this process may execute that file.
fn may_execute(path: &CString) -> Result<(), i32> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path.as_c_str(), Access::EXEC_OK, AtFlags::empty()).map_err(rustix::io::Errno::raw_os_error)
}

/// The wrapper's paths and the whole command line: its own words, the command's program where it is, and the command's
/// arguments. A program that is not there is as missing as without a wrapper.
fn wrapped(
    wrapper: &Wrapper,
    paths: &[CString],
    fallback: bool,
    argv: Vec<CString>,
    spawn: &Spawn,
    programs: &Programs,
) -> Result<(Vec<CString>, Vec<CString>), i32> {
    let is_relative = |path: &CString| !path.as_bytes().starts_with(b"/");
    let at = |path: &CString| {
        if is_relative(path) { text(&[&spawn.cwd[..], b"/", path.as_bytes()].concat()) } else { Ok(path.clone()) }
    };
    let mut found = Err(libc::ENOENT);
    for path in paths {
        match may_execute(&at(path)?) {
            Ok(()) => {
                found = Ok(path.clone());
                break;
            }
            // what stands alone unless nothing is there is refused as it is
            Err(errno) if errno != libc::ENOENT && errno != libc::ENOTDIR => {
                found = Err(errno);
                if fallback {
                    break;
                }
            }
            Err(_) => {}
        }
    }
    let program = found?;
    let first = wrapper.0.first().ok_or(libc::EINVAL)?;
    let runs = if first.contains(&b'/') { vec![text(first)?] } else { programs.candidates(first) };
    let words = wrapper.0.iter().map(|word| text(word)).collect::<Result<Vec<_>, _>>()?;
    Ok((runs, words.into_iter().chain([program]).chain(argv.into_iter().skip(1)).collect()))
}

/// The paths to try, and whether the first of them stands alone unless nothing is there.
fn paths(spawn: &Spawn, programs: &Programs) -> Result<(Vec<CString>, bool), i32> {
    let program = spawn.program.as_slice();
    if program.is_empty() {
        return Err(libc::ENOENT);
    }
    if !program.contains(&b'/') {
        text(program)?;
        return Ok((programs.candidates(program), false));
    }
    let mut paths = vec![text(program)?];
    let name = program.rsplit(|&b| b == b'/').next().unwrap_or_default();
    let by_name = spawn.by_name && program.starts_with(b"/") && !name.is_empty();
    if by_name {
        paths.extend(programs.candidates(name));
    }
    Ok((paths, by_name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hmz_wire::Bytes;

    #[test]
    fn a_wrapper_is_given_the_command_where_it_is() {
        let wrapper = Wrapper(vec![b"nice".to_vec(), b"-n5".to_vec()]);
        let programs = Programs::of(Some(b"/nowhere:/bin"));
        let spawn = Spawn {
            program: Bytes::from(&b"sh"[..]),
            argv: [&b"-sh"[..], b"-c", b"x"].map(Bytes::from).into(),
            cwd: Bytes::from(&b"/"[..]),
            id: 1,
            by_name: false,
            env: Vec::new(),
            umask: 0o22,
            blocked: 0,
            ignored: 0,
            fds: Vec::new(),
            ctty: None,
        };
        let line = |spawn: &Spawn| {
            let (paths, fallback) = paths(spawn, &programs)?;
            let argv = spawn.argv.iter().map(|a| text(a)).collect::<Result<Vec<_>, _>>()?;
            wrapped(&wrapper, &paths, fallback, argv, spawn, &programs)
        };
        let texts = |all: Vec<CString>| all.into_iter().map(|t| t.into_string().expect("text")).collect::<Vec<_>>();
        let (runs, argv) = line(&spawn).expect("a command line");
        assert_eq!(texts(runs), ["/nowhere/nice", "/bin/nice"]);
        assert_eq!(texts(argv), ["nice", "-n5", "/bin/sh", "-c", "x"]);
        let relative = Spawn { program: Bytes::from(&b"bin/sh"[..]), ..spawn };
        assert_eq!(texts(line(&relative).expect("a command line").1)[2], "bin/sh");
        let missing = Spawn { program: Bytes::from(&b"no-such-program"[..]), ..relative };
        assert_eq!(line(&missing), Err(libc::ENOENT));
        let other = Spawn { program: Bytes::from(&b"/etc/passwd"[..]), ..missing };
        assert_eq!(line(&other), Err(libc::EACCES));
    }

    #[test]
    fn what_is_set_goes_on_top_and_the_last_one_counts() {
        let own = Environ(vec![(b"A".to_vec(), b"1".to_vec()), (b"B".to_vec(), b"2".to_vec())]);
        let set = |name: &str, value: &str| (Bytes::from(name.as_bytes()), Bytes::from(value.as_bytes()));
        let all = own.with(&[set("B", "3"), set("C", "4"), set("C", "5=6")]).expect("variables");
        let all: Vec<_> = all.into_iter().map(|v| v.into_string().expect("text")).collect();
        assert_eq!(all, ["A=1", "B=3", "C=5=6"]);
        for wrong in ["", "A=B", "A\0"] {
            assert_eq!(own.with(&[set(wrong, "x")]), Err(libc::EINVAL));
        }
        assert_eq!(own.with(&[set("A", "x\0y")]), Err(libc::EINVAL));
    }
}
