//! Reads MSCCL XML: `algo` / `gpu` / `tb` / `step`. What an attribute may say is checked here, what the whole does
//! elsewhere. Attributes that say nothing to this runtime (protocol, sizes, channels in all) are passed over.

use roxmltree::{Document, Node};
use wire::ErrorCode;
use wire::launch::OpKind;

use crate::{Algorithm, Buffer, Fault, Gpu, Kind, MAX_BYTES, Place, Step, ThreadBlock};

/// Collectives by the names of files; the first of each is the one that is written.
pub(crate) const COLLECTIVES: [(&str, OpKind); 5] = [
    ("allreduce", OpKind::AllReduce),
    ("allgather", OpKind::AllGather),
    ("reducescatter", OpKind::ReduceScatter),
    ("reduce_scatter", OpKind::ReduceScatter),
    ("alltoall", OpKind::AllToAll),
];

/// Reads an algorithm, of which nothing has been checked but its form.
pub(crate) fn parse(text: &str) -> Result<Algorithm, Fault> {
    if text.len() > MAX_BYTES {
        let message = format!("{} bytes; at most {MAX_BYTES}", text.len());
        return Err(Fault::new(ErrorCode::ALGORITHM_READ, 0, message));
    }
    let document = Document::parse(text).map_err(|error| {
        let at = error.pos();
        let before = text.split_inclusive('\n').take(at.row as usize - 1).map(str::len).sum::<usize>();
        let rest = text.get(before..).unwrap_or_default();
        let column = rest.char_indices().nth(at.col as usize - 1).map_or(rest.len(), |(index, _)| index);
        Fault::new(ErrorCode::ALGORITHM_SYNTAX, before + column, error.to_string())
    })?;
    let root = document.root_element();
    if !root.has_tag_name("algo") {
        return Err(unexpected(root, "algo"));
    }
    algorithm(root)
}

fn algorithm(root: Node<'_, '_>) -> Result<Algorithm, Fault> {
    let name = text_of(root, "coll")?;
    let Some((_, op)) = COLLECTIVES.iter().find(|(coll, _)| *coll == name) else {
        let names: Vec<_> = COLLECTIVES.iter().map(|(coll, _)| *coll).collect();
        let message = format!("coll is {name:?}: expected one of {}", names.join(", "));
        return Err(Fault::new(ErrorCode::ALGORITHM_COLLECTIVE, place_of(root, "coll"), message));
    };
    let in_place = flag(root, "inplace", Some(false))?;
    let algorithm = Algorithm {
        name: root.attribute("name").unwrap_or("unnamed").to_owned(),
        op: *op,
        chunks: number(root, "nchunksperloop")?,
        in_place,
        // Older files know one of the two only.
        out_of_place: flag(root, "outofplace", Some(!in_place))?,
        gpus: children(root, "gpu", gpu)?,
    };
    let ranks = number(root, "ngpus")?;
    if ranks != algorithm.ranks() {
        let message = format!("ngpus is {ranks}, and there are {} gpu elements", algorithm.ranks());
        return Err(Fault::new(ErrorCode::ALGORITHM_ELEMENT, place_of(root, "ngpus"), message));
    }
    Ok(algorithm)
}

fn gpu(node: Node<'_, '_>) -> Result<Gpu, Fault> {
    let chunks = [number(node, "i_chunks")?, number(node, "o_chunks")?, number(node, "s_chunks")?];
    Ok(Gpu { chunks, blocks: children(node, "tb", block)?, at: node.range().start })
}

fn block(node: Node<'_, '_>) -> Result<ThreadBlock, Fault> {
    Ok(ThreadBlock {
        send: optional(node, "send")?,
        receive: optional(node, "recv")?,
        channel: number(node, "chan")?,
        steps: children(node, "step", step)?,
        at: node.range().start,
    })
}

fn step(node: Node<'_, '_>) -> Result<Step, Fault> {
    let name = text_of(node, "type")?;
    let Some((_, kind)) = Kind::ALL.iter().find(|(kind, _)| *kind == name) else {
        let names: Vec<_> = Kind::ALL.iter().map(|(name, _)| *name).collect();
        return Err(value(node, "type", &format!("one of {}", names.join(", "))));
    };
    let (block, after) = (optional(node, "depid")?, optional(node, "deps")?);
    let after = match (block, after) {
        (None, _) => None,
        (Some(block), Some(after)) => Some((block as usize, after as usize)),
        (Some(_), None) => return Err(value(node, "deps", "a step of tb depid")),
    };
    Ok(Step {
        kind: *kind,
        src: place(node, "srcbuf", "srcoff", kind.reads())?,
        dst: place(node, "dstbuf", "dstoff", kind.writes())?,
        count: number(node, "cnt")?,
        after,
        awaited: flag(node, "hasdep", None)?,
        at: node.range().start,
    })
}

/// A place; what is not used may be anything.
fn place(node: Node<'_, '_>, buffer: &str, chunk: &str, used: bool) -> Result<Place, Fault> {
    if !used {
        let letter = node.attribute(buffer).unwrap_or_default();
        let known = Buffer::ALL.into_iter().find(|buffer| buffer.letter() == letter);
        let chunk = node.attribute(chunk).and_then(|text| text.parse().ok()).unwrap_or(0);
        return Ok(Place { buffer: known.unwrap_or(Buffer::Input), chunk });
    }
    let letter = text_of(node, buffer)?;
    let found = Buffer::ALL.into_iter().find(|buffer| buffer.letter() == letter);
    let buffer = found.ok_or_else(|| value(node, buffer, "i, o or s"))?;
    Ok(Place { buffer, chunk: number(node, chunk)? })
}

/// Reads the children of an element, all called `name` and numbered from 0 by `id`, steps by `s`.
fn children<T>(
    parent: Node<'_, '_>,
    name: &'static str,
    read: fn(Node<'_, '_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let id = if name == "step" { "s" } else { "id" };
    let mut list = Vec::new();
    for node in parent.children() {
        if node.is_text() && node.text().is_some_and(|text| !text.trim().is_empty()) {
            let message = format!("text in {}: expected {name}", parent.tag_name().name());
            return Err(Fault::new(ErrorCode::ALGORITHM_ELEMENT, node.range().start, message));
        }
        if !node.is_element() {
            continue;
        }
        if !node.has_tag_name(name) {
            return Err(unexpected(node, name));
        }
        if number(node, id)? as usize != list.len() {
            return Err(value(node, id, &format!("{}: they are numbered from 0 in order", list.len())));
        }
        list.push(read(node)?);
    }
    Ok(list)
}

fn unexpected(node: Node<'_, '_>, expected: &str) -> Fault {
    let message = format!("element {:?}: expected {expected}", shown(node.tag_name().name()));
    Fault::new(ErrorCode::ALGORITHM_ELEMENT, node.range().start, message)
}

fn text_of<'a>(node: Node<'a, '_>, name: &str) -> Result<&'a str, Fault> {
    node.attribute(name).ok_or_else(|| {
        let message = format!("{} has no attribute {name}", node.tag_name().name());
        Fault::new(ErrorCode::ALGORITHM_ELEMENT, node.range().start, message)
    })
}

fn place_of(node: Node<'_, '_>, name: &str) -> usize {
    node.attribute_node(name).map_or(node.range().start, |attribute| attribute.range().start)
}

fn value(node: Node<'_, '_>, name: &str, expected: &str) -> Fault {
    let text = node.attribute(name).unwrap_or_default();
    let message = format!("{} {name} is {:?}: expected {expected}", node.tag_name().name(), shown(text));
    Fault::new(ErrorCode::ALGORITHM_VALUE, place_of(node, name), message)
}

/// A foreign text, cut to a length that fits a message.
fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}

fn number(node: Node<'_, '_>, name: &str) -> Result<u32, Fault> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = Some(text_of(node, name)?).filter(|text| digits(text)).and_then(|text| text.parse().ok());
    number.ok_or_else(|| value(node, name, "a number below 2^32"))
}

/// A number, or nothing where it is -1.
fn optional(node: Node<'_, '_>, name: &str) -> Result<Option<u32>, Fault> {
    if text_of(node, name)? == "-1" { Ok(None) } else { number(node, name).map(Some) }
}

fn flag(node: Node<'_, '_>, name: &str, default: Option<bool>) -> Result<bool, Fault> {
    match (node.attribute(name), default) {
        (Some("0"), _) => Ok(false),
        (Some("1"), _) => Ok(true),
        (None, Some(default)) => Ok(default),
        (None, None) => text_of(node, name).map(|_| false),
        (Some(_), _) => Err(value(node, name, "0 or 1")),
    }
}
