"""Lists of arms from outside: a subclass of ``ArmList``, among the services of a plug-in's routes.

    from shortlist_service.arm_lists import ArmList
    from shortlist_service.errors import NotFound

    class Editors(ArmList):
        def __init__(self, lists):
            self.lists = lists

        async def arms_of(self, name):
            if name not in self.lists:
                raise NotFound("there is no list with this name")
            return self.lists[name]

A choice with ``"baseline": "front-page"`` then serves the list of this name in place of a draw.
"""

from app.serving.arm_list import ArmList

__all__ = ["ArmList"]
