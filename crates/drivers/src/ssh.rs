//! An ssh host is asked what it has, by an `ssh` that asks nobody anything and leaves nothing there.

use crate::docker::way::saved_host;
use crate::error::DriverError;
use crate::types::{Facts, Target};
use hmz_api::{Cpus, Memory};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdout, Command};

/// What begins each line that is ours: what a login says by itself comes before or between.
const MARK: &str = "hmz-host ";
/// The last of them.
const END: &str = "hmz-host end .";
/// Most that is kept of what ssh says.
const MAX_WORDS: u64 = 1 << 16;
/// How long the last words of an ssh that ended are waited for.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What is asked, in any shell there is.
const ASKS: &str = r#"say() { printf 'hmz-host %s %s\n' "$1" "$2"; }
say home "$HOME"
say cpus "$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null)"
if [ -r /proc/meminfo ]; then
  while read -r name kib _; do [ "$name" = MemTotal: ] && say kib "$kib"; done </proc/meminfo
else
  say bytes "$(sysctl -n hw.memsize 2>/dev/null)"
fi
nvidia-smi --query-gpu=index,memory.total --format=csv,noheader,nounits 2>/dev/null </dev/null |
  while IFS=', ' read -r id mib; do say gpu "$id $mib"; done
say end .
"#;

/// `ssh` as it never asks anybody and gives nothing of this machine away; it ends with whoever holds it.
pub(crate) fn command() -> Command {
    let mut command = Command::new("ssh");
    command.args(["-T", "-a", "-x"]).kill_on_drop(true);
    for option in
        ["BatchMode=yes", "PermitLocalCommand=no", "RemoteCommand=none", "ServerAliveInterval=15", "ServerAliveCountMax=3"]
    {
        command.args(["-o", option]);
    }
    command
}

/// Asks a saved host.
///
/// # Errors
/// It cannot be reached, or says nothing; in ssh's own words where it has some.
pub async fn probe(target: &Target) -> Result<Facts, DriverError> {
    let at = target.runtime.at();
    let host = saved_host(&target.spec).ok_or_else(|| DriverError::Refused(format!("{at}: it says neither host nor alias")))?;
    let unreachable = |why: String| DriverError::Unreachable { at: at.clone(), why };
    let mut child = command()
        .args(["-o", "ClearAllForwardings=yes", "-S", "none"])
        .args(&host.options)
        .args(["-o", "ConnectTimeout=10", "--", &host.to, "exec sh"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| unreachable(format!("ssh: {e}")))?;
    let mut stdin = child.stdin.take();
    let asks = async move {
        // one that has ended already says why by itself
        if let Some(stdin) = &mut stdin {
            let _ = stdin.write_all(ASKS.as_bytes()).await;
        }
    };
    let words = child.stderr.take().map(|from| tokio::spawn(whole(from)));
    let ((), said) = tokio::join!(asks, answer(child.stdout.take()));
    if let Some(facts) = read(&said) {
        return Ok(Facts { endpoint: format!("ssh:{}", host.to), ..facts });
    }
    let status = child.wait().await.map_err(|e| unreachable(format!("ssh: {e}")))?;
    let words = match words {
        // a program it leaves behind holds them open
        Some(words) => tokio::time::timeout(LAST_WORDS, words).await.ok().and_then(Result::ok).unwrap_or_default(),
        None => String::new(),
    };
    let last = words.lines().map(str::trim).rfind(|line| !line.is_empty());
    Err(unreachable(last.map_or_else(|| format!("ssh to {} ended ({status})", host.to), str::to_owned)))
}

/// What it says, until it has said all: a program on the way may hold the pipe open.
async fn answer(from: Option<ChildStdout>) -> String {
    let (mut said, Some(from)) = (String::new(), from) else { return String::new() };
    let mut lines = BufReader::new(from).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if line.trim_end() == END {
            break;
        }
        said.push_str(&line);
        said.push('\n');
    }
    said
}

async fn whole(from: ChildStderr) -> String {
    let mut words = Vec::new();
    let _ = from.take(MAX_WORDS).read_to_end(&mut words).await;
    String::from_utf8_lossy(&words).into_owned()
}

/// What it said; `None` where that is not all of it.
fn read(said: &str) -> Option<Facts> {
    let ours = || said.lines().filter_map(|line| line.trim_end().strip_prefix(MARK)?.split_once(' '));
    let of = |name: &str| ours().find_map(|(n, value)| (n == name).then_some(value.trim()));
    let number = |name: &str| of(name)?.parse::<u64>().ok();
    let memory = number("kib").and_then(|kib| kib.checked_mul(1 << 10)).or_else(|| number("bytes"))?;
    // that it has none, or that its driver failed, the program says in the same place
    let is_id = |(id, _): &(&str, &str)| !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit());
    let gpus = || ours().filter(|(name, _)| *name == "gpu").filter_map(|(_, value)| value.split_once(' ')).filter(is_id);
    let ids: Vec<String> = gpus().map(|(id, _)| id.to_owned()).collect();
    let least = gpus().filter_map(|(_, mib)| mib.trim().parse::<u64>().ok()?.checked_mul(1 << 20)).min();
    Some(Facts {
        cpus: Cpus::whole(number("cpus")?),
        memory: Memory::from_bytes(memory),
        home: Some(of("home")?.to_owned()),
        gpu_names: ids.clone(),
        gpus: Some(ids),
        gpu_memory: least.map(Memory::from_bytes),
        ..Facts::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_says_is_read_between_what_its_login_says() {
        let said = "Welcome!\nhmz-host home /home/me\nhmz-host cpus 64\nLast login: never\r\nhmz-host kib 263192576\nhmz-host gpu 0 \
                    81920\nhmz-host gpu 1 81559\n";
        let facts = read(said).unwrap();
        assert_eq!((facts.home.as_deref(), facts.cpus, facts.memory.bytes() >> 30), (Some("/home/me"), Cpus::whole(64), 251));
        assert_eq!(
            (facts.gpus, facts.gpu_memory),
            (Some(vec!["0".to_owned(), "1".to_owned()]), Some(Memory::from_bytes(81_559 << 20)))
        );
        let mac = read("hmz-host home /Users/me\nhmz-host cpus 8\nhmz-host bytes 17179869184\n").unwrap();
        assert_eq!((mac.memory, mac.gpus, mac.gpu_memory), (Memory::from_bytes(16 << 30), Some(Vec::new()), None));
        for none in ["No devices were found", "NVIDIA-SMI has failed because it couldn't communicate with the driver."] {
            let facts = read(&format!("hmz-host home /h\nhmz-host cpus 8\nhmz-host kib 1\nhmz-host gpu {none}\n")).unwrap();
            assert_eq!((facts.gpus, facts.gpu_memory), (Some(Vec::new()), None), "{none}");
        }
        for half in
            ["", "hmz-host home /h\nhmz-host cpus 8\n", "hmz-host cpus 8\nhmz-host kib 1\n", "hmz-host home /h\nhmz-host kib 1\n"]
        {
            assert_eq!(read(half), None, "{half}");
        }
    }
}
