"""MEW: jobs are nodes of a graph, and a watch consumes them. Run: python examples/mew.py"""

import tempfile

from ackwise.mew import Session

WATCH = """
    w = WATCH j: Job, for_customer(j, c) [mode: consume, max_redeliveries: 2]
      [ordering: attribute(c.plan DESC)] RETURN j.what, c.name
"""

with tempfile.TemporaryDirectory() as folder:
    session = Session(f"sqlite:///{folder}/graph.db")
    session.run("""
        node Customer { name: String [required], plan: String = "free" }
        node Job { what: String [required] }
        edge for_customer(job: Job, customer: Customer)
        SPAWN ann: Customer { name = "Ann", plan = "paid" }
        SPAWN bob: Customer { name = "Bob" }
        BEGIN
        SPAWN newsletter: Job { what = "newsletter" }
        LINK for_customer(#newsletter, #bob)
        SPAWN receipt: Job { what = "receipt" }
        LINK for_customer(#receipt, #ann)
        COMMIT
    """)
    for event in session.watch(WATCH, wait=0):  # the paying customer comes first
        if event.type == "consumed":
            print(event.match["j.what"], "for", event.match["c.name"])
            session.ack(event)  # deletes the node
    print("jobs left:", session.query("MATCH j: Job RETURN j.what"))
    session.close()
