//! What a supervisor or a proxy is told: one JSON object, length-prefixed (u32, little endian), at the beginning of its
//! standard input. The rest of the input is the CLI's own. It carries the user's variables and never touches a disk.

use crate::AnchorError;
use hmz_api::launch::BoxAddress;
use hmz_api::link::LinkKey;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Everything a supervisor needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorConfig {
    /// The CLI's executable, absolute and resolved.
    pub program: PathBuf,
    /// Its arguments, the first one included.
    pub argv: Vec<String>,
    /// Its whole environment.
    pub env: BTreeMap<String, String>,
    /// The directory it starts in.
    pub cwd: PathBuf,
    /// The box its commands land in.
    pub place: BoxAddress,
    /// What stays here.
    pub policy: ExecPolicy,
    /// What the CLI itself may touch here.
    pub fence: CliFence,
    /// Names of variables a command may bring along when the CLI changed or set them; the rest of a command's
    /// environment is the box's own. A trailing `*` matches any ending.
    pub env_allow: Vec<String>,
    /// How they come there.
    #[serde(default)]
    pub passage: Passage,
}

/// How a supervisor's commands come to the box they land in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passage {
    /// It reaches the box itself.
    #[default]
    Own,
    /// It is in a second box, and hands each stand-in to whoever started it, who reaches the box.
    Handed,
    /// It is in a second box out of which no descriptor comes: whoever started it carries a stream to a guest in the box, for
    /// this session alone.
    Carried {
        /// What both ends of the stream prove to have.
        key: LinkKey,
        /// The guest's program in the box.
        guest: String,
    },
}

/// Largest configuration, in bytes of JSON: an environment and arguments are bounded by the kernel at 6 MiB.
const MAX_CONFIG: usize = 8 << 20;

impl SupervisorConfig {
    /// What is written to a supervisor's standard input before the CLI's own input.
    ///
    /// # Errors
    /// When it is larger than a supervisor reads.
    pub fn frame(&self) -> Result<Vec<u8>, AnchorError> {
        frame(self)
    }
}

/// Everything a proxy needs: a CLI that runs in a box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxedConfig {
    /// The CLI: a path in the box, or a name on its PATH.
    pub program: String,
    /// Its arguments, the first one included.
    pub argv: Vec<String>,
    /// Variables set on top of the box's own.
    pub env: BTreeMap<String, String>,
    /// The directory it starts in.
    pub cwd: PathBuf,
    /// The box.
    pub place: BoxAddress,
    /// Directories it may write in the box besides the workdir, the scratch directory and the temporary ones.
    pub write: Vec<PathBuf>,
}

impl BoxedConfig {
    /// What is written to a proxy's standard input before the CLI's own input.
    ///
    /// # Errors
    /// When it is larger than a proxy reads.
    pub fn frame(&self) -> Result<Vec<u8>, AnchorError> {
        frame(self)
    }
}

/// Everything a relay needs: a CLI that runs in a second box, supervised there. The frame of its [`SupervisorConfig`] follows
/// this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RelayConfig {
    /// The second box.
    pub second: BoxAddress,
    /// The box its commands land in.
    pub place: BoxAddress,
    /// Names of variables a command may bring along, as the supervisor is told.
    pub env_allow: Vec<String>,
    /// The session's own directory in the scratch directory.
    pub tmpdir: String,
    /// What commands leave for the CLI, as the supervisor is told.
    pub leaves: Vec<String>,
}

impl RelayConfig {
    /// What is written to a relay's standard input before the supervisor's own frame.
    ///
    /// # Errors
    /// When it is larger than a relay reads.
    pub fn frame(&self) -> Result<Vec<u8>, AnchorError> {
        frame(self)
    }
}

fn frame(config: &impl Serialize) -> Result<Vec<u8>, AnchorError> {
    let body = serde_json::to_vec(config).map_err(|e| AnchorError::Config(e.to_string()))?;
    if body.len() > MAX_CONFIG {
        return Err(AnchorError::Config(format!("{} bytes are too many", body.len())));
    }
    let mut frame = (body.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Reads exactly one frame, and no byte of what follows it.
///
/// # Errors
/// When the input ends early, or the frame is too large or does not decode. The text never holds a value of it.
pub(crate) fn read<T: DeserializeOwned>(input: &mut impl std::io::Read) -> Result<T, AnchorError> {
    let mut head = [0u8; 4];
    input.read_exact(&mut head).map_err(AnchorError::io("read the configuration"))?;
    let len = u32::from_le_bytes(head) as usize;
    if len > MAX_CONFIG {
        return Err(AnchorError::Config(format!("{len} bytes are too many")));
    }
    let mut body = vec![0; len];
    input.read_exact(&mut body).map_err(AnchorError::io("read the configuration"))?;
    serde_json::from_slice(&body)
        .map_err(|e| AnchorError::Config(format!("it does not decode at line {} column {}", e.line(), e.column())))
}

/// Descriptor 0 without a buffer: what follows the configuration is the CLI's.
pub(crate) struct Unbuffered;

impl std::io::Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), buffer)?)
    }
}

/// Which of the CLI's execs stay here. Everything else goes to the box; what cannot be read or classified is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExecPolicy {
    /// Executables (compared by device and inode) that stay here whoever of the CLI's own processes starts them: the CLI
    /// and its helpers.
    pub own: Vec<PathBuf>,
    /// Program names that stay here when the CLI itself starts them, such as `ps`: a box's process list would have it
    /// signal the wrong processes.
    pub listings: Vec<String>,
    /// A command may leave a file for the CLI in the scratch directory: what stands before its path at the end of the
    /// command's last argument.
    #[serde(default)]
    pub leaves: Vec<String>,
}

/// What the CLI may touch here (Landlock). Paths that do not exist are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CliFence {
    /// Directories it may write, with all below them.
    pub write: Vec<PathBuf>,
    /// Directories and files it may read beyond the system's own (`/usr`, `/etc`, `/proc`, …), the CLI's installation
    /// and what it may write.
    pub read: Vec<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_to_its_last_byte_and_no_further() {
        let place = BoxAddress {
            environment: "box".into(),
            used: "docker@here".into(),
            link: hmz_api::link::Link::Direct { socket: "/s".into(), pid: 2 },
            workdir: "/w".into(),
            scratch: "/t".into(),
        };
        let config = SupervisorConfig {
            program: "/bin/cli".into(),
            argv: vec!["cli".into()],
            env: BTreeMap::from([("KEY".into(), "value".into())]),
            cwd: "/w".into(),
            place,
            policy: ExecPolicy::default(),
            fence: CliFence::default(),
            env_allow: vec!["TERM".into()],
            passage: Passage::Own,
        };
        let mut bytes = config.frame().expect("a frame");
        bytes.extend_from_slice(b"input");
        let mut rest = bytes.as_slice();
        assert_eq!(read::<SupervisorConfig>(&mut rest).expect("a configuration"), config);
        assert_eq!(rest, b"input");
        for wrong in [&b""[..], &[1, 0], &[9, 0, 0, 0, b'{'], &[255, 255, 255, 255], &[2, 0, 0, 0, b'{', b'}']] {
            assert!(read::<SupervisorConfig>(&mut &*wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_error_tells_no_value() {
        let body = br#"{"env":{"KEY":"secret"},"program":7}"#;
        let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(body);
        let error = read::<SupervisorConfig>(&mut bytes.as_slice()).expect_err("no configuration").to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
