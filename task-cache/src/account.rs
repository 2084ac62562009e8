//! Accounts: what each communicator holds, and its entries in the order of their use.

use crate::room::Usage;
use crate::slot::{Links, List, Slot};

/// One communicator with entries, or the place for one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    instance: [u64; 2],
    pub(crate) usage: Usage,
    /// Live entries.
    pub(crate) live: List,
}

impl Account {
    const VACANT: Self = Self { instance: [0; 2], usage: Usage::NONE, live: List::EMPTY };

    fn is_open(&self) -> bool {
        self.usage.used.slots > 0
    }
}

/// The accounts of a directory: never more than it has entries.
#[derive(Clone, Debug)]
pub(crate) struct Accounts<const SLOTS: usize> {
    list: [Account; SLOTS],
    /// Accounts beyond this were never open.
    len: usize,
}

impl<const SLOTS: usize> Accounts<SLOTS> {
    pub(crate) const fn new() -> Self {
        Self { list: [Account::VACANT; SLOTS], len: 0 }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u16) -> Option<&mut Account> {
        self.list.get_mut(usize::from(number))
    }

    /// Returns what a communicator holds.
    pub(crate) fn usage(&self, instance: [u64; 2]) -> Usage {
        self.find(instance).map_or(Usage::NONE, |account| account.usage)
    }

    /// Returns the number of the account of a communicator, opening one if need be. An account without entries is
    /// open to be taken by another: charge it at once. `None` when every account has an entry of another.
    pub(crate) fn open(&mut self, instance: [u64; 2]) -> Option<u16> {
        let open = |account: &Account| account.is_open() && account.instance == instance;
        let number = match self.list.iter().take(self.len).position(open) {
            Some(number) => number,
            None => {
                let number = self.list.iter().position(|account| !account.is_open())?;
                let account = self.list.get_mut(number)?;
                *account = Account { instance, ..Account::VACANT };
                self.len = self.len.max(number + 1);
                number
            }
        };
        u16::try_from(number).ok()
    }

    /// Returns the least recently used entry of a communicator that may give way.
    pub(crate) fn victim_of<P>(
        &self,
        instance: [u64; 2],
        slots: &[Slot<P>],
        links: &[Links],
    ) -> Option<usize> {
        self.find(instance)?.live.victim(slots, links).map(|(_, at)| at)
    }

    /// Returns the least recently used entry of all that may give way.
    pub(crate) fn victim<P>(&self, slots: &[Slot<P>], links: &[Links]) -> Option<usize> {
        self.active().filter_map(|account| account.live.victim(slots, links)).min().map(|(_, at)| at)
    }

    fn active(&self) -> impl Iterator<Item = &Account> {
        self.list.iter().take(self.len).filter(|account| account.is_open())
    }

    fn find(&self, instance: [u64; 2]) -> Option<&Account> {
        self.active().find(|account| account.instance == instance)
    }
}
