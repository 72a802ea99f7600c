//! The command blocks of a page of documentation. A block marked `sh` is run by a test; `console` and `text` are not.

use std::path::PathBuf;

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Where it stands, as `README.md:12`.
    pub at: String,
    /// Its lines.
    pub text: String,
}

/// The file of that path in the repository.
pub fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The `sh` blocks of a page of the repository, in order.
///
/// # Panics
/// When there is no such page, or a block has no end.
pub fn shell_blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(file(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
    let mut blocks = Vec::new();
    let mut open: Option<(bool, Block)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (&mut open, line.trim_end().strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some((language == "sh", Block { at: format!("{page}:{number}"), text: String::new() }))
            }
            (None, None) => {}
            (Some(_), Some(_)) => blocks.extend(open.take().filter(|(is_shell, _)| *is_shell).map(|(_, block)| block)),
            (Some((_, block)), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
        }
    }
    assert!(open.is_none(), "{page}: a block has no end");
    blocks
}
