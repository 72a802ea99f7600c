//! Completion for zsh: no space follows what goes on, as `coder=` does, and what is typed in quotes is asked about without them.

use clap_complete::env::{EnvCompleter, Fish};
use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

/// The adapter.
pub struct Zsh;

impl EnvCompleter for Zsh {
    fn name(&self) -> &'static str {
        "zsh"
    }

    fn is(&self, name: &str) -> bool {
        name == "zsh"
    }

    fn write_registration(&self, var: &str, name: &str, bin: &str, completer: &str, buf: &mut dyn Write) -> Result<(), Error> {
        let completer = completer.replace('\'', r"'\''");
        writeln!(
            buf,
            "#compdef {bin}
_{name}_complete() {{
    local line value shown ret=1
    local -a whole begun
    for line in \"${{(@f)$({var}=zsh '{completer}' -- \"${{(@Q)words[1,CURRENT-1]}}\" \"${{(Q)PREFIX}}\" 2>/dev/null)}}\"; do
        value=${{line%%$'\\t'*}}
        shown=${{${{value//\\\\/\\\\\\\\}}//:/\\\\:}}
        [[ $line == *$'\\t'* ]] && shown+=:${{line#*$'\\t'}}
        case $value in
            '') ;;
            *[=/:@]) begun+=(\"$shown\") ;;
            *) whole+=(\"$shown\") ;;
        esac
    done
    (( $#begun )) && _describe -V values begun -S '' && ret=0
    (( $#whole )) && _describe -V values whole && ret=0
    return ret
}}
compdef _{name}_complete {bin}"
        )
    }

    /// A value a line, and behind a tab what it means.
    fn write_complete(
        &self,
        cmd: &mut clap::Command,
        args: Vec<OsString>,
        current_dir: Option<&Path>,
        buf: &mut dyn Write,
    ) -> Result<(), Error> {
        Fish.write_complete(cmd, args, current_dir, buf)
    }
}
