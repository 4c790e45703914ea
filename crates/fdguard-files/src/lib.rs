//! Files that must not be lost: what damaged a database, who holds it, and how it is healed.
