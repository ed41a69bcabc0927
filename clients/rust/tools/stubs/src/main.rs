//! Makes the client's stubs from a file of descriptors: `oncelog-stubs DESCRIPTORS FOLDER`.

use std::error::Error;
use std::path::Path;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, descriptors, folder] = arguments.as_slice() else {
        return Err("usage: oncelog-stubs DESCRIPTORS FOLDER".into());
    };
    let files = prost_types::FileDescriptorSet::decode(std::fs::read(descriptors)?.as_slice())?;
    let mut config = prost_build::Config::new();
    // Payloads are shared between attempts, and with the records of a batch that was read.
    config.bytes(["."]);
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .out_dir(Path::new(folder))
        .compile_fds_with_config(files, config)?;
    Ok(())
}
