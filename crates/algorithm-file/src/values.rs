//! What a chunk holds while an algorithm is carried out symbolically: whose inputs, reduced in which order.

/// A value of a [`Values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Value(u32);

/// How a value came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Chunk `chunk` of the input of `rank`.
    Input {
        /// The rank.
        rank: u32,
        /// The chunk.
        chunk: u32,
    },
    /// Two values reduced.
    Reduced(Value, Value),
}

#[derive(Clone, Copy, Debug)]
struct Node {
    term: Term,
    /// Chunk of everybody's input that it is made of.
    chunk: u32,
    /// Ranks whose input is in it, bit per rank.
    ranks: u128,
}

/// Values, each made of earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Values {
    nodes: Vec<Node>,
}

impl Values {
    pub(crate) fn input(&mut self, rank: u32, chunk: u32) -> Value {
        self.push(Node { term: Term::Input { rank, chunk }, chunk, ranks: 1 << rank })
    }

    /// Reduces two values of the same chunk and of different ranks; else says why not.
    pub(crate) fn reduced(&mut self, a: Value, b: Value) -> Result<Value, String> {
        let (one, other) = (self.node(a), self.node(b));
        if one.chunk != other.chunk {
            return Err(format!("reduces chunk {} with chunk {}", one.chunk, other.chunk));
        }
        let twice = one.ranks & other.ranks;
        if twice != 0 {
            return Err(format!("reduces the input of gpu {} a second time", twice.trailing_zeros()));
        }
        let ranks = one.ranks | other.ranks;
        Ok(self.push(Node { term: Term::Reduced(a, b), chunk: one.chunk, ranks }))
    }

    /// Returns how a value came to be.
    #[must_use]
    pub fn term(&self, value: Value) -> Term {
        self.node(value).term
    }

    /// Returns the chunk of everybody's input that it is made of.
    pub(crate) fn chunk(&self, value: Value) -> u32 {
        self.node(value).chunk
    }

    /// Returns whose input is in it, bit per rank.
    pub(crate) fn ranks(&self, value: Value) -> u128 {
        self.node(value).ranks
    }

    /// Returns what a value is, in words.
    pub(crate) fn describe(&self, value: Value) -> String {
        let node = self.node(value);
        let ranks: Vec<_> =
            (0..128).filter(|rank| node.ranks >> rank & 1 == 1).map(|r| r.to_string()).collect();
        format!("chunk {} of gpu {}", node.chunk, ranks.join("+"))
    }

    fn node(&self, value: Value) -> Node {
        self.nodes[value.0 as usize]
    }

    fn push(&mut self, node: Node) -> Value {
        self.nodes.push(node);
        Value(u32::try_from(self.nodes.len() - 1).expect("fewer values than steps times chunks"))
    }
}
