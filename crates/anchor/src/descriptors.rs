//! Which of a command's descriptors cross into the box.
//!
//! A descriptor is a way back: one of a file here that was opened for reading can be opened again for writing from the
//! box, and one of a directory is the root of this machine. So only these pass as they are: pipes and unnamed socketpairs
//! made in the CLI's own tree, terminals whose other side is held there, `/dev/null`, and regular files that the box has
//! anyway, below a shared directory. The first three descriptors are copied through a pipe where they may not pass;
//! directories, path handles, devices, sockets with a name and everything else stay here.

use crate::AnchorError;
use crate::pump::Pump;
use crate::tree;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fcntl_getfl, fstat, major, minor};
use rustix::net::AddressFamily;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What is known of the session when its descriptors are looked at.
#[derive(Debug)]
pub(crate) struct Borders {
    /// The directories both sides have, as real paths, and each one open as a path.
    shared: Vec<(PathBuf, OwnedFd)>,
    /// Devices and inodes of the CLI's own first three descriptors: their other ends are not in its tree.
    foreign: HashSet<(u64, u64)>,
    /// The process below which the CLI and all it started is.
    root: i32,
}

/// What a command gets.
#[derive(Debug, Default)]
pub(crate) struct Crossing {
    /// The numbers in the command.
    pub(crate) numbers: Vec<i32>,
    /// The descriptors, in the same order.
    pub(crate) fds: Vec<OwnedFd>,
    /// What is copied.
    pub(crate) pumps: Vec<Pump>,
}

/// How one descriptor crosses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pass,
    Copy,
    Refuse,
}

impl Borders {
    /// For a session below `root` with these shared directories, whose CLI has this process's first three descriptors.
    pub(crate) fn new(shared: &[PathBuf], root: i32) -> Result<Self, AnchorError> {
        let open = |dir: &PathBuf| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(dir, flags, Mode::empty()).map(|fd| (dir.clone(), fd))
        };
        let shared = shared.iter().map(open).collect::<Result<_, _>>().map_err(AnchorError::errno("open a shared directory"))?;
        let foreign = [fstat(rustix::stdio::stdin()), fstat(rustix::stdio::stdout()), fstat(rustix::stdio::stderr())];
        let foreign = foreign.into_iter().flatten().map(|s| (s.st_dev, s.st_ino)).collect();
        Ok(Self { shared, foreign, root })
    }

    /// Sorts a command's descriptors. `copied`: the client copies what it is given, so that what only may not cross itself
    /// is given to it; a terminal and a socket of others are not, since it would have the command write to what it reads.
    pub(crate) fn cross(&self, given: Vec<(i32, OwnedFd)>, copied: bool) -> Result<Crossing, AnchorError> {
        let all_are_copied = copied;
        let mut crossing = Crossing::default();
        // two descriptors of one file share one pipe, so that what is written to both keeps its order
        let mut copied: HashMap<(u64, u64), OwnedFd> = HashMap::new();
        // most often what is written and what is complained of go to one file
        let mut known = None;
        for (number, fd) in given {
            let fd = match self.judge(fd.as_fd(), &mut known) {
                Verdict::Pass => fd,
                Verdict::Copy if all_are_copied && (0..=2).contains(&number) && has_one_direction(fd.as_fd()) => fd,
                Verdict::Copy if (0..=2).contains(&number) => {
                    let id = fstat(&fd).map(|s| (s.st_dev, s.st_ino)).map_err(AnchorError::errno("look at a descriptor"))?;
                    if number == 0 {
                        let (pump, theirs) = Pump::input(fd)?;
                        crossing.pumps.push(pump);
                        theirs
                    } else if let Some(theirs) = copied.get(&id) {
                        theirs.try_clone().map_err(AnchorError::io("duplicate a descriptor"))?
                    } else {
                        let (pump, theirs) = Pump::output(fd)?;
                        crossing.pumps.push(pump);
                        copied.insert(id, theirs.try_clone().map_err(AnchorError::io("duplicate a descriptor"))?);
                        theirs
                    }
                }
                Verdict::Refuse if (0..=2).contains(&number) => null()?,
                Verdict::Copy | Verdict::Refuse => continue,
            };
            crossing.numbers.push(number);
            crossing.fds.push(fd);
        }
        Ok(crossing)
    }

    /// `known`: device and inode of a regular file that the box has.
    fn judge(&self, fd: BorrowedFd<'_>, known: &mut Option<(u64, u64)>) -> Verdict {
        let (Ok(stat), Ok(flags)) = (fstat(fd), fcntl_getfl(fd)) else {
            return Verdict::Refuse;
        };
        if flags.contains(OFlags::PATH) {
            return Verdict::Refuse;
        }
        let foreign = self.foreign.contains(&(stat.st_dev, stat.st_ino));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo if foreign => Verdict::Copy,
            FileType::Fifo if is_unnamed_pipe(fd) => Verdict::Pass,
            FileType::Fifo => match link_of(fd) {
                Some(link) if self.is_shared(&link, &stat) => Verdict::Pass,
                Some(_) => Verdict::Copy,
                None => Verdict::Refuse,
            },
            FileType::RegularFile if *known == Some((stat.st_dev, stat.st_ino)) => Verdict::Pass,
            FileType::RegularFile => match link_of(fd) {
                Some(link) if self.is_shared(&link, &stat) => {
                    *known = Some((stat.st_dev, stat.st_ino));
                    Verdict::Pass
                }
                _ => Verdict::Copy,
            },
            FileType::Socket if !foreign && self.is_own_pair(fd) => Verdict::Pass,
            FileType::Socket if is_unix(fd) && (foreign || is_unnamed(fd)) => Verdict::Copy,
            FileType::CharacterDevice => self.judge_device(fd, &stat),
            _ => Verdict::Refuse,
        }
    }

    fn judge_device(&self, fd: BorrowedFd<'_>, stat: &Stat) -> Verdict {
        match (major(stat.st_rdev), minor(stat.st_rdev)) {
            (1, 3) => Verdict::Pass,
            (136..=143, index) if self.holds_master(stat, index) => Verdict::Pass,
            _ if rustix::termios::isatty(fd) => Verdict::Copy,
            _ => Verdict::Refuse,
        }
    }

    /// Whether the path a descriptor has names the very same file below a shared directory: on the same mount, without a
    /// link on the way, and still there.
    fn is_shared(&self, path: &Path, stat: &Stat) -> bool {
        self.shared.iter().any(|(dir, root)| {
            let Ok(below) = path.strip_prefix(dir) else { return false };
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::NO_MAGICLINKS;
            let found = rustix::fs::openat2(root, below, flags, Mode::empty(), how).and_then(fstat);
            found.is_ok_and(|found| (found.st_dev, found.st_ino) == (stat.st_dev, stat.st_ino))
        })
    }

    /// Whether it is one end of a socketpair without names that was made below the root.
    fn is_own_pair(&self, fd: BorrowedFd<'_>) -> bool {
        if !is_unix(fd) || !is_unnamed(fd) {
            return false;
        }
        let Ok(peer) = getsockopt(&fd, PeerCredentials) else { return false };
        let pid = peer.pid();
        // one that is outside of this pid namespace is number 0, and none of the tree; one that is gone cannot be asked:
        // what the CLI was started with is known by its inode
        pid > 0 && (tree::parent(pid).is_none() || tree::is_below(pid, self.root))
    }

    /// Whether a process of the tree holds the other side of terminal `index`.
    fn holds_master(&self, slave: &Stat, index: u32) -> bool {
        let same_instance = rustix::fs::stat("/dev/pts").is_ok_and(|pts| pts.st_dev == slave.st_dev);
        same_instance && std::iter::once(self.root).chain(tree::descendants(self.root)).any(|pid| holds_master_of(pid, index))
    }
}

fn holds_master_of(pid: i32, index: u32) -> bool {
    let Ok(fds) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    fds.flatten().any(|fd| {
        let is_master = std::fs::read_link(fd.path()).is_ok_and(|link| link.ends_with("ptmx"));
        is_master
            && std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", fd.file_name().to_string_lossy())).is_ok_and(|info| {
                info.lines().any(|line| line.strip_prefix("tty-index:").map(str::trim) == Some(&index.to_string()))
            })
    })
}

/// Whether a pipe is in no directory.
fn is_unnamed_pipe(fd: BorrowedFd<'_>) -> bool {
    /// The type of the file system such pipes are in (linux/magic.h).
    const PIPEFS: i64 = 0x5049_5045;
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type == PIPEFS)
}

fn link_of(fd: BorrowedFd<'_>) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

fn is_unix(fd: BorrowedFd<'_>) -> bool {
    rustix::net::sockopt::socket_domain(fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
}

/// Whether neither side of a connected Unix socket has a name.
fn is_unnamed(fd: BorrowedFd<'_>) -> bool {
    // such an address is its family and nothing more
    let unnamed = |address: rustix::net::SocketAddrAny| usize::try_from(address.addr_len()).is_ok_and(|len| len == 2);
    let own = rustix::net::getsockname(fd).is_ok_and(unnamed);
    let peer = rustix::net::getpeername(fd);
    own && peer.is_ok_and(|peer| peer.is_none_or(unnamed))
}

/// Whether bytes go one way only, whatever the command does with it.
fn has_one_direction(fd: BorrowedFd<'_>) -> bool {
    fstat(fd).is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::RegularFile))
}

fn null() -> Result<OwnedFd, AnchorError> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(AnchorError::errno("open /dev/null"))
}
