//! A terminal's settings, taken from one terminal and given to another.

use super::{Size, TerminalSettings};
use crate::Bytes;
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex as Index, Winsize, tcgetattr,
    tcgetwinsize, tcsetattr, tcsetwinsize,
};
use std::os::fd::AsFd;

/// The special characters in the order they cross.
const CODES: [Index; 17] = [
    Index::VINTR,
    Index::VQUIT,
    Index::VERASE,
    Index::VKILL,
    Index::VEOF,
    Index::VTIME,
    Index::VMIN,
    Index::VSWTC,
    Index::VSTART,
    Index::VSTOP,
    Index::VSUSP,
    Index::VEOL,
    Index::VREPRINT,
    Index::VDISCARD,
    Index::VWERASE,
    Index::VLNEXT,
    Index::VEOL2,
];

impl Size {
    /// That of a terminal.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(terminal: impl AsFd) -> std::io::Result<Self> {
        let size = tcgetwinsize(terminal)?;
        Ok(Self { rows: size.ws_row, cols: size.ws_col, width: size.ws_xpixel, height: size.ws_ypixel })
    }

    /// Gives it to a terminal.
    ///
    /// # Errors
    /// When it is none.
    pub fn apply(self, terminal: impl AsFd) -> std::io::Result<()> {
        let size = Winsize { ws_row: self.rows, ws_col: self.cols, ws_xpixel: self.width, ws_ypixel: self.height };
        Ok(tcsetwinsize(terminal, size)?)
    }
}

impl TerminalSettings {
    /// Those of a terminal.
    ///
    /// # Errors
    /// When it is none.
    pub fn of(terminal: impl AsFd) -> std::io::Result<Self> {
        let found = tcgetattr(&terminal)?;
        Ok(Self {
            modes: [found.input_modes.bits(), found.output_modes.bits(), found.control_modes.bits(), found.local_modes.bits()],
            codes: Bytes::from(CODES.map(|index| found.special_codes[index]).to_vec()),
            size: Size::of(terminal)?,
        })
    }

    /// Gives them to a terminal.
    ///
    /// # Errors
    /// When it is none.
    pub fn apply(&self, terminal: impl AsFd) -> std::io::Result<()> {
        let mut settings = tcgetattr(&terminal)?;
        let [input, output, control, local] = self.modes;
        settings.input_modes = InputModes::from_bits_retain(input);
        settings.output_modes = OutputModes::from_bits_retain(output);
        settings.control_modes = ControlModes::from_bits_retain(control);
        settings.local_modes = LocalModes::from_bits_retain(local);
        for (index, code) in CODES.iter().zip(self.codes.iter()) {
            settings.special_codes[*index] = *code;
        }
        tcsetattr(&terminal, OptionalActions::Now, &settings)?;
        self.size.apply(terminal)
    }
}

/// Has every byte pass a terminal as it is.
///
/// # Errors
/// When it is none.
pub fn make_raw(terminal: impl AsFd) -> std::io::Result<()> {
    let mut settings = tcgetattr(&terminal)?;
    settings.make_raw();
    Ok(tcsetattr(&terminal, OptionalActions::Now, &settings)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

    #[test]
    fn settings_go_from_one_to_the_other() {
        let terminal = || {
            let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
            let master = openpt(flags).expect("a terminal");
            grantpt(&master).and_then(|()| unlockpt(&master)).expect("unlocked");
            let slave = ioctl_tiocgptpeer(&master, flags).expect("its other side");
            (master, slave)
        };
        let ((_a, from), (_b, to)) = (terminal(), terminal());
        let size = Size { rows: 30, cols: 90, width: 0, height: 7 };
        size.apply(&from).expect("a size");
        make_raw(&from).expect("raw");
        let mut settings = TerminalSettings::of(&from).expect("settings");
        settings.codes[0] = 7;
        assert_ne!(settings.modes, TerminalSettings::of(&to).expect("settings").modes);
        settings.apply(&to).expect("applied");
        assert_eq!(TerminalSettings::of(&to).expect("settings"), settings);
    }
}
