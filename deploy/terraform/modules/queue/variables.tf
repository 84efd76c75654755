variable "project" {
  description = "The project's id."
  type        = string
}

variable "name" {
  description = "Name of the topic and of the subscription: WAKEQ_TOPIC and WAKEQ_SUBSCRIPTION."
  type        = string
  default     = "wakeq"
}

variable "regions" {
  description = "Where notifications may be stored; none is anywhere."
  type        = list(string)
  default     = []
}

variable "publishers" {
  description = "Addresses of the service accounts that emit, work, or serve, by names of your choice."
  type        = map(string)
}

variable "subscribers" {
  description = "Addresses of the service accounts that work in pull mode, by names of your choice."
  type        = map(string)
  default     = {}
}

variable "viewers" {
  description = "Addresses of the service accounts that only look at the subscription, for `wakeq doctor` in push mode, by names of your choice."
  type        = map(string)
  default     = {}
}

variable "broadcast" {
  description = "Whether every emitted event is also broadcast, for who listens. The processes need WAKEQ_BROADCAST=1, too."
  type        = bool
  default     = false
}

variable "listeners" {
  description = "Addresses of the service accounts that listen to broadcasts, by names of your choice: those that serve the API, and of programs that subscribe."
  type        = map(string)
  default     = {}
}

variable "push" {
  description = "Push mode: the address that is called (…/v1/push), the account and the audience of its token, and the longest handler."
  type = object({
    endpoint          = string
    account           = string
    audience          = string
    handler_timeout_s = number
  })
  default = null

  validation {
    condition     = var.push == null || try(startswith(var.push.endpoint, "https://"), false)
    error_message = "Pub/Sub shows tokens to https:// addresses only."
  }
}
