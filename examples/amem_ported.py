"""A script for the original A-MEM, ported by changing one import line. Run it twice: it remembers.

    python examples/amem_ported.py

Without an OpenAI key the notes are read by rules. The memory is engramma's own, in the space "amem";
set ENGRAMMA_DB to keep it in another file.
"""

# from agentic_memory.memory_system import AgenticMemorySystem
from engramma.compat.amem import AgenticMemorySystem

memory_system = AgenticMemorySystem(
    model_name="all-MiniLM-L6-v2",
    llm_backend="openai",
    llm_model="gpt-4o-mini",
)
print(f"{len(memory_system.memories)} notes from earlier runs")

migration = memory_system.add_note("We moved the invoice service from MySQL to PostgreSQL.", time="202503021500")
incident = memory_system.add_note(
    content="The invoice service was slow on Monday because an index was missing.",
    keywords=["invoice service", "slow query"],
    tags=["incident"],
    category="Operations",
)
memory_system.add_note("The team celebrated with cake on Friday.", tags=["team"])
memory_system.add_note("发票服务的备份每天凌晨三点运行。", tags=["运维"])

note = memory_system.read(incident)
print(f"\n{note.content}\n  context   {note.context}\n  keywords  {note.keywords}\n  tags      {note.tags}")

memory_system.update(incident, links=[*note.links, migration])
print("\nWhy was it slow?")
for found in memory_system.search_agentic("Which index was missing?", k=1):
    kind = "linked" if found["is_neighbor"] else "found"
    print(f"{kind:8}{found['timestamp'] if found['id'] == migration else ''}  {found['content']}  {found['tags']}")

memory_system.update(migration, content="We moved the invoice service from MySQL to PostgreSQL 18.")
print("\nAfter an update:", memory_system.search("PostgreSQL", k=1)[0]["content"])

text, ids = memory_system.find_related_memories("发票备份什么时候运行？", k=1)
print("\n" + text.split("\t")[2], ids == [memory_system.search("备份", k=1)[0]["id"]])

scratch = memory_system.add_note("A note that nobody needs.")
print("\ndeleted:", memory_system.delete(scratch), memory_system.read(scratch))
