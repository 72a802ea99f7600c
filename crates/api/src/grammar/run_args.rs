//! `run_args`: the arguments of `docker run` a box takes. A closed list, as data: what an argument sets in the request that
//! makes the container, or why it is refused. Values are read as docker's command line reads them.
//!
//! `docs/run-args.md` is this list for people; a test keeps the two the same.

use serde_json::{Map, Value, json};

/// Where the list is, for whoever is refused.
const DOCS: &str = "docs/run-args.md";

/// What an argument does.
#[derive(Debug, Clone, Copy)]
enum Does {
    /// Sets the place in the request to the value read this way.
    Sets(&'static str, Read),
    /// It is refused, for this reason.
    Refused(&'static str),
}

/// How a value is read.
#[derive(Debug, Clone, Copy)]
enum Read {
    /// The text.
    Text,
    /// A word that stands alone, or `true` or `false`.
    Switch,
    /// A whole number.
    Number,
    /// A size, such as `64m`.
    Bytes,
    /// Added to a list.
    Item,
    /// `NAME=VALUE`, added to a mapping.
    Pair,
    /// `NAME=VALUE`, a variable.
    Variable,
    /// `NAME=VALUE`, a label that is none of ours.
    Label,
    /// `NAME=SOFT[:HARD]`.
    Ulimit,
    /// `HOST[:BOX[:rwm]]`.
    Device,
    /// `SOURCE:TARGET[:ro|rw]`.
    Volume,
    /// `type=…,source=…,target=…[,readonly]`.
    Mount,
    /// `TARGET[:OPTIONS]`.
    Tmpfs,
    /// `none`, `private` or `shareable`.
    Ipc,
    /// A capability; not `ALL`.
    Capability,
    /// A security option; not one that lets rights be gained.
    Security,
}

const SHARE: &str = "it contradicts the share the box is granted; say cpus, memory and gpus of the role or the runtime";
const OURS: &str = "hmz starts the box, and removes it";
const USER: &str = "a box runs as the owner of its directory, or as exec_user";
const FIRST: &str = "a box's first process is hmz's own";

/// One row: the long name, the letter, and what it does.
type Row = (&'static str, Option<char>, Does);

use Does::{Refused, Sets};

/// The list.
const TABLE: &[Row] = &[
    ("--add-host", None, Sets("/HostConfig/ExtraHosts", Read::Item)),
    ("--annotation", None, Sets("/HostConfig/Annotations", Read::Pair)),
    ("--blkio-weight", None, Sets("/HostConfig/BlkioWeight", Read::Number)),
    ("--cap-add", None, Sets("/HostConfig/CapAdd", Read::Capability)),
    ("--cap-drop", None, Sets("/HostConfig/CapDrop", Read::Item)),
    ("--cgroup-parent", None, Sets("/HostConfig/CgroupParent", Read::Text)),
    ("--device", None, Sets("/HostConfig/Devices", Read::Device)),
    ("--dns", None, Sets("/HostConfig/Dns", Read::Item)),
    ("--dns-opt", None, Sets("/HostConfig/DnsOptions", Read::Item)),
    ("--dns-option", None, Sets("/HostConfig/DnsOptions", Read::Item)),
    ("--dns-search", None, Sets("/HostConfig/DnsSearch", Read::Item)),
    ("--domainname", None, Sets("/Domainname", Read::Text)),
    ("--env", Some('e'), Sets("/Env", Read::Variable)),
    ("--group-add", None, Sets("/HostConfig/GroupAdd", Read::Item)),
    ("--hostname", Some('h'), Sets("/Hostname", Read::Text)),
    ("--ipc", None, Sets("/HostConfig/IpcMode", Read::Ipc)),
    ("--label", Some('l'), Sets("/Labels", Read::Label)),
    ("--log-driver", None, Sets("/HostConfig/LogConfig/Type", Read::Text)),
    ("--log-opt", None, Sets("/HostConfig/LogConfig/Config", Read::Pair)),
    ("--mount", None, Sets("/HostConfig/Mounts", Read::Mount)),
    ("--net", None, Sets("/HostConfig/NetworkMode", Read::Text)),
    ("--network", None, Sets("/HostConfig/NetworkMode", Read::Text)),
    ("--read-only", None, Sets("/HostConfig/ReadonlyRootfs", Read::Switch)),
    ("--security-opt", None, Sets("/HostConfig/SecurityOpt", Read::Security)),
    ("--shm-size", None, Sets("/HostConfig/ShmSize", Read::Bytes)),
    ("--storage-opt", None, Sets("/HostConfig/StorageOpt", Read::Pair)),
    ("--sysctl", None, Sets("/HostConfig/Sysctls", Read::Pair)),
    ("--tmpfs", None, Sets("/HostConfig/Tmpfs", Read::Tmpfs)),
    ("--ulimit", None, Sets("/HostConfig/Ulimits", Read::Ulimit)),
    ("--volume", Some('v'), Sets("/HostConfig/Mounts", Read::Volume)),
    ("--attach", Some('a'), Refused(OURS)),
    ("--cidfile", None, Refused(OURS)),
    ("--cpu-period", None, Refused(SHARE)),
    ("--cpu-quota", None, Refused(SHARE)),
    ("--cpu-rt-period", None, Refused(SHARE)),
    ("--cpu-rt-runtime", None, Refused(SHARE)),
    ("--cpu-shares", Some('c'), Refused(SHARE)),
    ("--cpus", None, Refused(SHARE)),
    ("--cpuset-cpus", None, Refused(SHARE)),
    ("--cpuset-mems", None, Refused(SHARE)),
    ("--detach", Some('d'), Refused(OURS)),
    ("--entrypoint", None, Refused(FIRST)),
    ("--env-file", None, Refused("a file of variables is not read; say each in exec_env")),
    ("--gpus", None, Refused(SHARE)),
    ("--init", None, Refused(FIRST)),
    ("--interactive", Some('i'), Refused(OURS)),
    ("--kernel-memory", None, Refused(SHARE)),
    ("--label-file", None, Refused("labels say whose a box is and what it holds; say each other one with --label")),
    ("--memory", Some('m'), Refused(SHARE)),
    ("--memory-reservation", None, Refused(SHARE)),
    ("--memory-swap", None, Refused(SHARE)),
    ("--memory-swappiness", None, Refused(SHARE)),
    ("--name", None, Refused("the name of a box is derived; say name_prefix")),
    ("--oom-kill-disable", None, Refused(SHARE)),
    ("--oom-score-adj", None, Refused(SHARE)),
    ("--pid", None, Refused(FIRST)),
    ("--pids-limit", None, Refused(SHARE)),
    ("--privileged", None, Refused("it hands the daemon's machine to what runs in the box")),
    ("--restart", None, Refused(OURS)),
    ("--rm", None, Refused(OURS)),
    ("--runtime", None, Refused("it has a field of its own: runtime")),
    ("--tty", Some('t'), Refused(OURS)),
    ("--user", Some('u'), Refused(USER)),
    ("--userns", None, Refused(USER)),
    ("--volumes-from", None, Refused("it brings mounts nobody sees here; say each with --volume or --mount")),
    ("--workdir", Some('w'), Refused("it has a field of its own: workdir")),
];

/// What is wrong with one of the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Which word, from 0.
    pub index: usize,
    /// Why, in one sentence.
    pub message: String,
}

/// One thing the arguments set in the request that makes a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Where, as a JSON pointer.
    pub place: &'static str,
    /// The value. A list is added to the list there, and a mapping to the mapping.
    pub value: Value,
}

/// Reads the words of `run_args`.
///
/// # Errors
/// The first one that is refused, is on no list, or whose value is none.
pub fn parse(words: &[String]) -> Result<Vec<Setting>, Wrong> {
    let mut settings = Vec::new();
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let index = at;
        let wrong = |message: String| Wrong { index, message };
        let (row, mut value) = split(word).map_err(wrong)?;
        let (name, _, does) = row;
        let (place, read) = match does {
            Sets(place, read) => (place, read),
            Refused(why) => return Err(wrong(format!("run_args: {name} is refused: {why}"))),
        };
        at += 1;
        if value.is_none() && !matches!(read, Read::Switch) {
            value = words.get(at).map(String::as_str);
            at += 1;
        }
        let value = match (value, read) {
            (Some(value), _) => value,
            (None, Read::Switch) => "true",
            (None, _) => return Err(wrong(format!("run_args: {name} needs a value"))),
        };
        // what a variable is set to may be a secret, and so may one that has no name
        let shown = match read {
            Read::Variable => value.split_once('=').map(|(name, _)| format!(" {name}=…")).unwrap_or_default(),
            _ => format!(" {value}"),
        };
        let value = read_value(*read, value).map_err(|why| wrong(format!("run_args: {name}{shown} is refused: {why}")))?;
        settings.push(Setting { place, value });
    }
    Ok(settings)
}

/// The row of a word, and the value in the same word.
fn split(word: &str) -> Result<(&'static Row, Option<&str>), String> {
    let unknown = |name: &str| format!("run_args: {name} is not among the arguments a box takes; they are listed in {DOCS}");
    if let Some(long) = word.strip_prefix("--").filter(|l| !l.is_empty()) {
        let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
        let row = TABLE.iter().find(|(n, ..)| n.strip_prefix("--") == Some(name));
        return row.map(|row| (row, value)).ok_or_else(|| unknown(&format!("--{name}")));
    }
    let Some(short) = word.strip_prefix('-').and_then(|s| s.chars().next()) else {
        return Err(
            "run_args: a word is no argument; each begins with a dash, and the image and its command are not said here".into()
        );
    };
    let rest = &word[1 + short.len_utf8()..];
    let row = TABLE.iter().find(|(_, letter, _)| *letter == Some(short)).ok_or_else(|| unknown(&format!("-{short}")))?;
    let value = rest.strip_prefix('=').unwrap_or(rest);
    Ok((row, Some(value).filter(|v| !v.is_empty())))
}

fn read_value(read: Read, text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Err("it is empty".into());
    }
    let pair = || text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| "it is not NAME=VALUE".to_owned());
    Ok(match read {
        Read::Text => text.into(),
        Read::Switch => match text {
            "true" | "1" => true.into(),
            "false" | "0" => false.into(),
            _ => return Err("it is neither true nor false".into()),
        },
        Read::Number => text.parse::<u32>().map_err(|_| "it is not a whole number".to_owned())?.into(),
        Read::Bytes => {
            let size = text.parse::<crate::Memory>().map_err(|_| "it is not a size, such as 64m".to_owned())?;
            size.bytes().into()
        }
        Read::Item => json!([text]),
        Read::Pair => {
            let (name, value) = pair()?;
            json!({name: value})
        }
        Read::Variable => {
            let (name, _) = pair()?;
            if name == "NVIDIA_VISIBLE_DEVICES" {
                return Err(SHARE.into());
            }
            json!([text])
        }
        Read::Label => {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            if name == "humanize" || name.starts_with("humanize.") || name.starts_with("hmz.") {
                return Err("that label says whose a box is and what it holds".into());
            }
            json!({name: value})
        }
        Read::Ulimit => {
            let (name, value) = pair()?;
            let (soft, hard) = value.split_once(':').unwrap_or((value, value));
            let number = |t: &str| t.parse::<i64>().map_err(|_| "it is not NAME=SOFT[:HARD]".to_owned());
            json!([{"Name": name, "Soft": number(soft)?, "Hard": number(hard)?}])
        }
        Read::Device => device(text)?,
        Read::Volume => volume(text)?,
        Read::Mount => mount(text)?,
        Read::Tmpfs => {
            let (target, options) = text.split_once(':').unwrap_or((text, ""));
            json!({checked_target(target)?: options})
        }
        Read::Ipc => match text {
            "none" | "private" | "shareable" => text.into(),
            _ => return Err("a box's IPC is none, private or shareable".into()),
        },
        Read::Capability => match text.to_ascii_uppercase().trim_start_matches("CAP_") {
            "ALL" => return Err("every capability hands the daemon's machine to what runs in the box".into()),
            name => json!([format!("CAP_{name}")]),
        },
        Read::Security => {
            let (name, _) = text.split_once(['=', ':']).unwrap_or((text, ""));
            match name {
                "no-new-privileges" => return Err("a box never gains rights; that is set already".into()),
                "seccomp" if !text.ends_with("unconfined") => return Err("a file of a seccomp profile is not read".into()),
                "label" | "apparmor" | "seccomp" | "systempaths" => json!([text.replacen(':', "=", 1)]),
                _ => return Err("it is no security option docker has".into()),
            }
        }
    })
}

fn device(text: &str) -> Result<Value, String> {
    let mut parts = text.split(':');
    let host = parts.next().unwrap_or_default();
    let (target, rights) = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => (host, "rwm"),
        (Some(rights), None, None) if is_rights(rights) => (host, rights),
        (Some(target), None, None) => (target, "rwm"),
        (Some(target), Some(rights), None) if is_rights(rights) => (target, rights),
        _ => return Err("it is not HOST[:BOX[:rwm]]".into()),
    };
    if !host.starts_with("/dev/") || !target.starts_with('/') {
        return Err("it is not a device under /dev".into());
    }
    if host.starts_with("/dev/nvidia") || host.starts_with("/dev/dri") || host.starts_with("/dev/kfd") {
        return Err(SHARE.into());
    }
    Ok(json!([{"PathOnHost": host, "PathInContainer": target, "CgroupPermissions": rights}]))
}

fn is_rights(text: &str) -> bool {
    !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| matches!(b, b'r' | b'w' | b'm'))
}

/// Where something is mounted in a box, which is not where hmz has its own.
fn checked_target(target: &str) -> Result<String, String> {
    let clean: Vec<&str> = target.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if !target.starts_with('/') || clean.contains(&"..") {
        return Err("where it is mounted is not an absolute path".into());
    }
    match clean.first() {
        None => Err("it would be mounted over the whole box".into()),
        Some(&".hmz") => Err("/.hmz is hmz's own".into()),
        Some(_) => Ok(format!("/{}", clean.join("/"))),
    }
}

fn mounted(kind: &str, source: Option<&str>, target: &str, read_only: bool) -> Result<Value, String> {
    let target = checked_target(target)?;
    let mut one = Map::new();
    one.insert("Type".into(), kind.into());
    match (kind, source) {
        ("bind", Some(source)) if source.starts_with('/') => one.insert("Source".into(), source.into()),
        ("bind", _) => return Err("what is mounted is not an absolute path".into()),
        ("volume", Some(source)) if !source.contains('/') => one.insert("Source".into(), source.into()),
        ("volume" | "tmpfs", None) => None,
        _ => return Err("its type is not bind, volume or tmpfs, or has another source".into()),
    };
    one.insert("Target".into(), target.into());
    one.insert("ReadOnly".into(), read_only.into());
    Ok(json!([one]))
}

fn volume(text: &str) -> Result<Value, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, read_only) = match parts.as_slice() {
        [target] => (None, *target, false),
        [source, target] => (Some(*source), *target, false),
        [source, target, "ro"] => (Some(*source), *target, true),
        [source, target, "rw"] => (Some(*source), *target, false),
        _ => return Err("it is not SOURCE:TARGET[:ro|rw]".into()),
    };
    let kind = if source.is_some_and(|s| s.starts_with('/')) { "bind" } else { "volume" };
    mounted(kind, source, target, read_only)
}

fn mount(text: &str) -> Result<Value, String> {
    let (mut kind, mut source, mut target, mut read_only) = ("volume", None, "", false);
    for field in text.split(',') {
        let (name, value) = field.split_once('=').unwrap_or((field, "true"));
        match name {
            "type" => kind = value,
            "source" | "src" => source = Some(value),
            "target" | "dst" | "destination" => target = value,
            "readonly" | "ro" => read_only = matches!(value, "true" | "1"),
            other => return Err(format!("'{other}' is none of type, source, target and readonly")),
        }
    }
    mounted(kind, source, target, read_only)
}

/// The list for people: each argument, its letter, and what it sets or why it is refused.
pub fn listed() -> Vec<(String, String)> {
    TABLE
        .iter()
        .map(|(name, letter, does)| {
            let name = letter.map_or_else(|| (*name).to_owned(), |l| format!("{name}, -{l}"));
            let what = match does {
                Sets(place, _) => format!("sets {}", place.trim_start_matches('/').replace('/', ".")),
                Refused(why) => format!("refused: {why}"),
            };
            (name, what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
        match parse(&words) {
            Ok(settings) => settings.iter().map(|s| format!("{} {}", s.place, s.value)).collect::<Vec<_>>().join("; "),
            Err(wrong) => format!("{}: {}", wrong.index, wrong.message),
        }
    }

    #[test]
    fn arguments_are_read_as_docker_reads_them() {
        for (words, sets) in [
            (&["--shm-size", "64m"][..], "/HostConfig/ShmSize 67108864"),
            (&["--shm-size=1.5GiB"], "/HostConfig/ShmSize 1610612736"),
            (&["--shm-size=100"], "/HostConfig/ShmSize 100"),
            (&["-eA=b=c", "-e", "D=", "-e=E=f"], "/Env [\"A=b=c\"]; /Env [\"D=\"]; /Env [\"E=f\"]"),
            (&["--read-only", "--read-only=false"], "/HostConfig/ReadonlyRootfs true; /HostConfig/ReadonlyRootfs false"),
            (&["--ulimit", "nofile=1024:2048"], "/HostConfig/Ulimits [{\"Name\":\"nofile\",\"Soft\":1024,\"Hard\":2048}]"),
            (&["--ulimit=core=-1"], "/HostConfig/Ulimits [{\"Name\":\"core\",\"Soft\":-1,\"Hard\":-1}]"),
            (&["--sysctl", "net.x=1"], "/HostConfig/Sysctls {\"net.x\":\"1\"}"),
            (&["--label", "team=a", "-l", "b"], "/Labels {\"team\":\"a\"}; /Labels {\"b\":\"\"}"),
            (
                &["--device", "/dev/fuse:r"],
                "/HostConfig/Devices [{\"PathOnHost\":\"/dev/fuse\",\"PathInContainer\":\"/dev/fuse\",\"CgroupPermissions\":\"r\"}]",
            ),
            (
                &["-v", "/a:/b/:ro"],
                "/HostConfig/Mounts [{\"Type\":\"bind\",\"Source\":\"/a\",\"Target\":\"/b\",\"ReadOnly\":true}]",
            ),
            (
                &["--volume=cache:/c"],
                "/HostConfig/Mounts [{\"Type\":\"volume\",\"Source\":\"cache\",\"Target\":\"/c\",\"ReadOnly\":false}]",
            ),
            (
                &["--mount", "type=tmpfs,dst=/t,ro"],
                "/HostConfig/Mounts [{\"Type\":\"tmpfs\",\"Target\":\"/t\",\"ReadOnly\":true}]",
            ),
            (&["--tmpfs", "/t:size=1m"], "/HostConfig/Tmpfs {\"/t\":\"size=1m\"}"),
            (&["--cap-add", "sys_ptrace"], "/HostConfig/CapAdd [\"CAP_SYS_PTRACE\"]"),
            (&["--security-opt", "label:disable"], "/HostConfig/SecurityOpt [\"label=disable\"]"),
            (&["--network", "none", "-h", "x"], "/HostConfig/NetworkMode \"none\"; /Hostname \"x\""),
            (&[], ""),
        ] {
            assert_eq!(said(words), sets, "{words:?}");
        }
    }

    #[test]
    fn what_is_refused_is_named() {
        let listed = "is not among the arguments a box takes; they are listed in docs/run-args.md";
        for (words, why) in [
            (&["--cpus", "4"][..], format!("0: run_args: --cpus is refused: {SHARE}")),
            (&["--dns", "1.1.1.1", "-m1g"], format!("2: run_args: --memory is refused: {SHARE}")),
            (&["--gpus=all"], format!("0: run_args: --gpus is refused: {SHARE}")),
            (&["-u", "0"], format!("0: run_args: --user is refused: {USER}")),
            (&["--name=x"], "0: run_args: --name is refused: the name of a box is derived; say name_prefix".into()),
            (
                &["--label", "humanize.cpus=0"],
                "0: run_args: --label humanize.cpus=0 is refused: that label says whose a box is and what it holds".into(),
            ),
            (
                &["--label=humanize=1"],
                "0: run_args: --label humanize=1 is refused: that label says whose a box is and what it holds".into(),
            ),
            (&["-e", "NVIDIA_VISIBLE_DEVICES=all"], format!("0: run_args: --env NVIDIA_VISIBLE_DEVICES=… is refused: {SHARE}")),
            (&["-e", "HOME"], "0: run_args: --env is refused: it is not NAME=VALUE".into()),
            (&["--device", "/dev/nvidia0"], format!("0: run_args: --device /dev/nvidia0 is refused: {SHARE}")),
            (&["-v", "/a:/.hmz/x"], "0: run_args: --volume /a:/.hmz/x is refused: /.hmz is hmz's own".into()),
            (&["-v", "/a:/"], "0: run_args: --volume /a:/ is refused: it would be mounted over the whole box".into()),
            (
                &["-v", "/a:/x/../.hmz"],
                "0: run_args: --volume /a:/x/../.hmz is refused: where it is mounted is not an absolute path".into(),
            ),
            (&["--publish", "80:80"], format!("0: run_args: --publish {listed}")),
            (&["-P"], format!("0: run_args: -P {listed}")),
            (&["--shm-size"], "0: run_args: --shm-size needs a value".into()),
            (&["--shm-size", "much"], "0: run_args: --shm-size much is refused: it is not a size, such as 64m".into()),
            (
                &["busybox"],
                "0: run_args: a word is no argument; each begins with a dash, and the image and its command are not said here"
                    .into(),
            ),
            (
                &["--cap-add=all"],
                "0: run_args: --cap-add all is refused: every capability hands the daemon's machine to what runs in the box"
                    .into(),
            ),
            (&["--"], format!("0: run_args: -- {listed}")),
        ] {
            assert_eq!(said(words), why, "{words:?}");
        }
    }

    #[test]
    fn the_list_for_people_is_this_one() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/run-args.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows: Vec<&str> = text.lines().filter(|l| l.starts_with("| `-")).collect();
        let expected: Vec<String> = listed().iter().map(|(name, what)| format!("| `{name}` | {what} |")).collect();
        assert_eq!(rows, expected, "docs/run-args.md is not the list; it is:\n{}", expected.join("\n"));
    }
}
