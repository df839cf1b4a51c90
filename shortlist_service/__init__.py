"""What plug-ins of the service import: this package, and the library ``shortlist``. All else is private.

    ``policies``      a policy: how arms are ranked for a learner
    ``constraints``   a constraint: which arms a choice may have
    ``indexes``       an index: how the best arms are found
    ``engines``       an engine that has the arms of a catalogue, and finds them
    ``routes``        calls of the API
    ``arm_lists``     lists of arms that a choice may ask for as its ``baseline``
    ``commands``      commands of ``shortlist``
    ``settings``      settings, read from the environment
    ``console``       pages of the console
    ``octet_streams`` bodies of many numbers
    ``bodies``        items of the API's calls, to check them elsewhere
    ``tokens``        what the token of a decision says
    ``learners``      states of learners; learners, priors and arm effects from rewards alone
    ``logs``          the log of a command that runs until it is stopped
    ``catalogues``    arms, their features and their fields, at a revision too
    ``storage``       what a plug-in stores
    ``decision_log``  rows of the decision log, by which terms their rewards count, and what a log tells of
    ``metrics``       metrics of one's own
    ``jobs``          work that goes on while its client does something else
    ``work``          long computations, bounded memory, and work in the background
    ``testing``       contracts: tests that a package runs on itself
    ``errors``        what any of them raises

A package names what it adds by entry points in its ``pyproject.toml``:

    [project.entry-points."shortlist.policies"]
    feel_good = "my_package:FeelGood"

Importing these modules loads no plug-in, but ``bandits``, which has the bodies of the API: a policy cannot
import it. docs/plugins.md has a whole package. The names here follow semantic versioning: one that is removed
or changes its meaning is a new major version of the service.
"""
