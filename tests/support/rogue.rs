//! An agent CLI that does what the test says: a node script in claude's place, on PATH under its name. What hmz holds of a
//! CLI that is hostile, or only odd, is seen by it; the real one is too well behaved for that.

use super::agent;
use super::home::TestHome;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Puts it in claude's place. `body` is the body of an async JavaScript function of the turn's task; the text it returns,
/// or what it throws, is the turn's answer. `fs`, `cp` (child_process), `sh(command, options)` and `attempt(f)` are there.
pub fn install(home: &mut TestHome, body: &str) {
    let script = format!(
        r#"#!/usr/bin/env node
const fs = require('fs'), cp = require('child_process');
const sh = (command, options) => {{
  const it = cp.spawnSync('/bin/sh', ['-c', command], Object.assign({{encoding: 'utf8', maxBuffer: 1 << 28}}, options));
  return it.error ? 'error ' + it.error.code : ((it.stdout || '') + (it.stderr || '')).trim() + ' [' + (it.signal || it.status) + ']';
}};
const attempt = f => {{ try {{ const it = f(); return 'DONE ' + String(it).slice(0, 200); }} catch (e) {{ return e.code || String(e); }} }};
const turn = async task => {{ {body} }};
require('readline').createInterface({{input: process.stdin}}).on('line', async line => {{
  const said = JSON.parse(line);
  if (said.type !== 'user') return;
  let answer;
  try {{ answer = await turn(said.message.content[0].text); }} catch (e) {{ answer = 'THREW ' + e.stack; }}
  process.stdout.write(JSON.stringify({{type: 'result', subtype: 'success', is_error: false, result: String(answer)}}) + '\n');
}}).on('close', () => process.exit(0));
"#
    );
    let dir = home.root().join("rogue");
    fs::create_dir_all(&dir).expect("a directory for the rogue");
    fs::write(dir.join("claude"), script).expect("the rogue");
    fs::set_permissions(dir.join("claude"), fs::Permissions::from_mode(0o755)).expect("an executable rogue");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("a directory others can enter");
    let path = format!("{}:{}:/usr/local/bin:/usr/bin:/bin", dir.display(), agent::node().display());
    home.set("PATH", path);
    home.set("ANTHROPIC_API_KEY", agent::API_KEY);
}
