//! Algorithms as MSCCL XML.

use core::fmt::Write;

use crate::xml::COLLECTIVES;
use crate::{Algorithm, Step};

/// Returns an algorithm as a file that other implementations of the format take too.
#[must_use]
pub fn to_xml(algorithm: &Algorithm) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, algorithm);
    text
}

fn write(text: &mut String, algorithm: &Algorithm) -> core::fmt::Result {
    let blocks = || algorithm.gpus.iter().flat_map(|gpu| &gpu.blocks);
    let channels = blocks().map(|block| block.channel + 1).max().unwrap_or(1);
    let coll = COLLECTIVES.iter().find(|(_, op)| *op == algorithm.op).map_or("?", |(name, _)| *name);
    let name = escaped(&algorithm.name);
    let places = [algorithm.in_place, algorithm.out_of_place].map(u8::from);
    writeln!(
        text,
        r#"<algo name="{name}" proto="Simple" nchannels="{channels}" nchunksperloop="{}" ngpus="{}" coll="{coll}" inplace="{}" outofplace="{}" minBytes="0" maxBytes="0">"#,
        algorithm.chunks,
        algorithm.ranks(),
        places[0],
        places[1],
    )?;
    for (rank, gpu) in algorithm.gpus.iter().enumerate() {
        let [input, output, scratch] = gpu.chunks;
        writeln!(text, r#"  <gpu id="{rank}" i_chunks="{input}" o_chunks="{output}" s_chunks="{scratch}">"#)?;
        for (id, block) in gpu.blocks.iter().enumerate() {
            let [send, receive] = [block.send, block.receive].map(|peer| peer.map_or(-1, i64::from));
            writeln!(text, r#"    <tb id="{id}" send="{send}" recv="{receive}" chan="{}">"#, block.channel)?;
            for (number, step) in block.steps.iter().enumerate() {
                write_step(text, number, step)?;
            }
            writeln!(text, "    </tb>")?;
        }
        writeln!(text, "  </gpu>")?;
    }
    writeln!(text, "</algo>")
}

fn write_step(text: &mut String, number: usize, step: &Step) -> core::fmt::Result {
    let (depid, deps) = step
        .after
        .map_or(("-1".to_owned(), "-1".to_owned()), |(block, after)| (block.to_string(), after.to_string()));
    writeln!(
        text,
        r#"      <step s="{number}" type="{}" srcbuf="{}" srcoff="{}" dstbuf="{}" dstoff="{}" cnt="{}" depid="{depid}" deps="{deps}" hasdep="{}"/>"#,
        step.kind,
        step.src.buffer.letter(),
        step.src.chunk,
        step.dst.buffer.letter(),
        step.dst.chunk,
        step.count,
        u8::from(step.awaited),
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
