//! Writes the JSON Schemas into `schemas/` of the workspace: `cargo run -p hmz-manifest --example schemas`.

fn main() -> std::io::Result<()> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    fs_err::create_dir_all(&folder)?;
    for (name, text) in hmz_manifest::schema::files() {
        fs_err::write(folder.join(name), text)?;
    }
    Ok(())
}
